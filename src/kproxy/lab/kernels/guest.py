"""First process of a User-Mode Linux guest: prepares it, runs one command, writes its exit status, powers off.

Run by path with ``-I -S`` and one argument, the job's folder on the host's file system, so it may use the standard
library alone. The job is ``job.json`` there (`kproxy.lab.kernels.uml.UmlJob`); output goes to ``out`` and ``error``,
the exit status to ``status``. Signals to forward arrive by name, a line each, on `CONTROL`; when that is closed, the
starter has gone, and the guest ends.

With a second argument, ``run_in_vm``, it runs a job in a virtual machine that others prepared and will power off
(`kproxy.lab.kernels.vm`): no first process, and signals are lines of the file ``orders`` in the folder.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

CONTROL = "/dev/ttyS0"
SEED = "seed"
"""Argument of a universe's kernel, which it gives this process as an environment variable."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 (a file system of this guest's own)
MOUNTS = (
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", SHARED_MEMORY),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/run"),
)
CONNECTIONS = {
    "/sys/module/nf_conntrack/parameters/hashsize": "16384",
    "/proc/sys/net/netfilter/nf_conntrack_max": "65536",
}
MODULES = "/run/modules/lib/modules"
PRELOADED = (
    *("veth", "bridge", "dummy", "ipv6", "nf_conntrack_netlink", "ip_vs_rr", "ip_vs_mh"),
    *(f"{family}table_{table}" for family in ("ip", "ip6") for table in ("filter", "nat", "mangle")),
    *(f"{family}t_REJECT" for family in ("ip", "ip6")),
    *(f"xt_{name}" for name in ("addrtype", "comment", "conntrack", "mark", "set", "statistic", "tcpudp")),
    *(f"xt_{name}" for name in ("MASQUERADE", "REDIRECT", "nat")),
    *(f"ip_set_hash_{name}" for name in ("ip", "ipport", "ipportip", "ipportnet")),
    "ip_set_bitmap_port",
)
"""Modules of most jobs: to load them together takes a fraction of what one process for each takes, started by the kernel."""
NO_MODULE = 'case "$*" in *netdev-* | *kube-ipvs0) exit 1 ;; esac'
"""A line of the kernel's helper: it is run with the name of an interface, as with a module's, whenever there is none of that name."""
NOT_FOUND = 127
PROCESSOR = ("GLIBC_TUNABLES", "OPENSSL_ia32cap")
"""Environment variables that the kernel's own helpers need as well, since it gives them none (`kproxy.lab.kernels.processor`)."""

_LOOK = 0.2
_POWER_OFF = 0x4321FEDC
_ADD_ENTROPY, _ENTROPY_BYTES = 0x40085203, 32
_SET_INTERFACE_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41
_libc = ctypes.CDLL(None, use_errno=True)


def guest_main(folder: Path) -> None:
    """Prepare the guest, run the job, power off."""
    if os.getpid() != 1:
        sys.exit("only as the first process of a guest: it powers the machine off")
    try:
        mount_filesystems()
        give_entropy(os.environ.get(SEED, ""))
        job = json.loads((folder / "job.json").read_text())
        load_modules_from(job["modules"])
        track_many_connections()
        write_exit_status(folder, run_guest_command(folder, job, forward_signals))
    finally:
        power_off()


def run_in_vm(folder: Path) -> None:
    """Run a job in a machine that is not this program's own."""
    job = json.loads((folder / "job.json").read_text())
    write_exit_status(
        folder,
        run_guest_command(folder, job, lambda child: forward_signals_from_file(folder / "orders", child)),
    )


def write_exit_status(folder: Path, status: int) -> None:
    """Write the exit status atomically."""
    (folder / "status.new").write_text(str(status))
    (folder / "status.new").replace(folder / "status")


def power_off() -> None:
    """End the guest, whatever still runs in it."""
    os.sync()
    _libc.reboot(_POWER_OFF)


def mount_filesystems() -> None:
    """Mount the file systems that programs expect, and bring loopback up."""
    for kind, place in MOUNTS:
        Path(place).mkdir(parents=True, exist_ok=True)
        _libc.mount(kind.encode(), place.encode(), kind.encode(), 0, None)
    for place in ("/run/lock", "/run/netns"):
        Path(place).mkdir()
    if not Path("/dev/fd").exists():
        Path("/dev/fd").symlink_to("/proc/self/fd")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_INTERFACE_FLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))


def give_entropy(seed: str) -> None:
    """Give the kernel of a universe the random bytes that it would compute otherwise, most of a second long; empty: it is none."""
    if not seed:
        return
    data = f"universe {seed}".encode().ljust(_ENTROPY_BYTES)
    with open("/dev/random", "wb") as device:  # noqa: PTH123 (a device)
        fcntl.ioctl(device, _ADD_ENTROPY, struct.pack("ii", 8 * len(data), len(data)) + data)


def load_modules_from(place: str) -> None:
    """Make modules in a folder of the host available to the kernel, if it has any, and load those of most jobs, as far as it has them."""
    if not place:
        return
    Path(MODULES).parent.mkdir(parents=True)
    Path(MODULES).symlink_to(place)
    helper = Path("/run/modules/modprobe")
    exports = "".join(f"export {name}='{os.environ[name]}'\n" for name in PROCESSOR if name in os.environ)
    helper.write_text(f'#!/bin/sh\n{exports}{NO_MODULE}\nexec /sbin/modprobe -d /run/modules "$@"\n')
    helper.chmod(0o755)
    Path("/proc/sys/kernel/modprobe").write_text(str(helper))
    os.spawnv(os.P_WAIT, helper, [str(helper), "-a", "-q", *PRELOADED])  # noqa: S606 (no shell is wanted)


def track_many_connections() -> None:
    """Raise nf_conntrack_max: the default for so little memory, 2000, is less than a catalogue's connections in virtual time."""
    for setting, value in CONNECTIONS.items():
        with suppress(OSError):  # where conntrack is a module, nothing has loaded it yet
            Path(setting).write_text(value)


def run_guest_command(folder: Path, job: Mapping[str, Any], attend: Callable[[int], None]) -> int:
    """Run the job's command; returns its exit status, 128 and more for the signal that ended it.

    ``attend`` forwards signals to it, in a thread.
    """
    child = os.fork()
    if child == 0:
        exec_command(folder, job)
    threading.Thread(target=attend, args=(child,), daemon=True).start()
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def exec_command(folder: Path, job: Mapping[str, Any]) -> None:
    """Replace this process by the job's command."""
    try:
        os.setsid()
        os.chdir(job["cwd"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "out"), (2, "error")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_APPEND), number)
        os.execvpe(job["argv"][0], job["argv"], job["environment"])  # noqa: S606 (no shell is wanted)
    except OSError as error:
        os.write(2, f"{job['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(NOT_FOUND)


def forward_signals(child: int) -> None:
    """Forward signals to the command until the control pipe is closed."""
    try:
        with Path(CONTROL).open(encoding="ascii") as line:
            for signal_name in line:
                os.kill(child, signal.Signals[signal_name.strip()])
    except ProcessLookupError:
        return
    except OSError:
        pass
    power_off()


def forward_signals_from_file(orders: Path, child: int) -> None:
    """Forward signals to the command as they are appended to the file."""
    with orders.open(encoding="ascii") as lines:
        while True:
            for signal_name in lines:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.Signals[signal_name.strip()])
            time.sleep(_LOOK)


if __name__ == "__main__":
    (run_in_vm if sys.argv[2:] == ["run_in_vm"] else guest_main)(Path(sys.argv[1]))
