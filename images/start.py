"""The image's entry point: kproxy, and what it starts, with the capabilities that its container has been given.

A user that is not root has them permitted, by the file's own (``images/capable.py``), but not effective, and what it
executes would have none: ambient ones are inherited (capabilities(7)).
"""

import ctypes
import os
import runpy
import struct

VERSION_3 = 0x20080522
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2

libc = ctypes.CDLL(None, use_errno=True)


def permitted() -> int:
    """The permitted set, as bits."""
    data = ctypes.create_string_buffer(24)
    if libc.capget(struct.pack("Ii", VERSION_3, 0), data):
        raise OSError(ctypes.get_errno(), "capget")
    _, low, _, _, high, _ = struct.unpack("6I", data.raw)
    return int(low | high << 32)


def take(capabilities: int) -> None:
    """Make them effective, here and in what this process executes."""
    low, high = capabilities & 0xFFFFFFFF, capabilities >> 32
    if libc.capset(struct.pack("Ii", VERSION_3, 0), struct.pack("6I", low, low, low, high, high, high)):
        raise OSError(ctypes.get_errno(), "capset")
    for number in range(capabilities.bit_length()):
        if capabilities >> number & 1:
            libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0)


if __name__ == "__main__":
    if os.geteuid():
        take(permitted())
    runpy.run_module("kproxy", run_name="__main__", alter_sys=True)
