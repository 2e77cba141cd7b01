"""Kernels that cannot keep all of a processor's state are started so that they see less of it."""

import errno
import os
import subprocess
import sys

import pytest

from kproxy.lab.kernels import processor

AMX = "flags\t\t: fpu sse2 avx avx2 avx512f amx_bf16 amx_tile amx_int8\n"
NO_AMX = "flags\t\t: fpu sse2 avx avx2 avx512f\n"

REQUEST_STATE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_void_p]
for request, kind in ((0x4204, 0x202), (0x4205, 0x202), (0x4204, 1)):
    libc.ptrace(request, 1, kind, None)
    print(ctypes.get_errno())
"""


@pytest.mark.parametrize(
    ("release", "cpuinfo", "expected"),
    [
        ("6.1.176", AMX, True),
        ("6.12.117-kproxy", AMX, True),
        ("6.13.0", AMX, False),
        ("7.2.13-kproxy", AMX, False),
        ("6.1.176", NO_AMX, False),
    ],
)
def test_it_is_too_much_for_old_kernels_on_processors_with_tiles(
    release: str, cpuinfo: str, *, expected: bool
) -> None:
    assert processor.exceeds_uml_state(release, cpuinfo) is expected


def test_a_kernel_that_is_started_so_cannot_request_extended_state_and_can_request_other() -> None:
    hidden = subprocess.run(
        [sys.executable, "-I", "-S", processor.__file__, sys.executable, "-c", REQUEST_STATE],
        capture_output=True,
        text=True,
        check=True,
    )
    plain = subprocess.run([sys.executable, "-c", REQUEST_STATE], capture_output=True, text=True, check=True)
    assert hidden.stdout.split()[:2] == [str(errno.EIO)] * 2
    assert str(errno.EIO) not in hidden.stdout.split()[2:] + plain.stdout.split()


def test_the_environment_is_one_that_this_machines_libraries_understand() -> None:
    reported = {**os.environ, **processor._WITHOUT_AVX}
    done = subprocess.run(
        [sys.executable, "-c", "import hashlib"], env=reported, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
