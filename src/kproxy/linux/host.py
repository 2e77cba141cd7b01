"""Interface to the machine: run a command, read and write files of /proc and sysctls.

Everything happens in the network namespace of the calling thread; nothing here switches it. Blocking, no
asyncio: a caller with an event loop uses a thread. All failures are `HostError`.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import os
import shlex
import shutil
import subprocess
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

from kproxy.linux import descriptors
from kproxy.linux.descriptors import Purpose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


DEFAULT_TIMEOUT = 60.0
"""Time limit of a command, in seconds."""

_PIPE_SIZE = 1 << 20
"""Size of the pipe to a tool's stdin, in bytes: 1 MiB, the default of fs.pipe-max-size for unprivileged users.

A large pipe lets a tool parse while the rest of its input is still being rendered.
"""

_SYSCTL_ROOT = Path("/proc/sys")
_STDERR_SHOWN = 2000


class Reason(enum.Enum):
    """Class of a failure, as far as callers react differently."""

    MISSING = "missing"
    EXISTS = "exists"
    BUSY = "busy"
    UNSUPPORTED = "unsupported"
    DENIED = "denied"
    TIMEOUT = "timeout"
    OTHER = "other"


_PHRASES = (
    (Reason.BUSY, ("holding the xtables lock", "resource temporarily unavailable", "resource busy")),
    (Reason.EXISTS, ("file exists", "already exists", "with this name already")),
    (
        Reason.UNSUPPORTED,
        (
            "not supported",
            "couldn't load match",
            "can't initialize",
            "permission denied",
            "command not found",
        ),
    ),
    # iptables-nft calls a chain that does not exist incompatible
    (
        Reason.MISSING,
        ("no chain/target/match", "no such file", "does not exist", "matching rule exist", "incompatible"),
    ),
)

_ERRNO_REASONS = {
    errno.ENOENT: Reason.MISSING,
    errno.ESRCH: Reason.MISSING,
    errno.EEXIST: Reason.EXISTS,
    errno.EBUSY: Reason.BUSY,
    errno.EAGAIN: Reason.BUSY,
    errno.EINTR: Reason.BUSY,
    errno.EOPNOTSUPP: Reason.UNSUPPORTED,
    errno.EPROTONOSUPPORT: Reason.UNSUPPORTED,
    errno.EAFNOSUPPORT: Reason.UNSUPPORTED,
    errno.EPERM: Reason.DENIED,
    errno.EACCES: Reason.DENIED,
    errno.EROFS: Reason.DENIED,
}


class HostError(Exception):
    """Failure of an operation on this machine: ``str()`` is the command line or operation, a colon, and the reason."""

    def __init__(self, operation: str, detail: str, reason: Reason) -> None:
        """``operation``: the command line or system call that was tried; ``detail``: the error text of the tool or kernel."""
        super().__init__(f"{operation}: {detail} [{reason.value}]")
        self.operation = operation
        self.detail = detail
        self.reason = reason


def classify_stderr(stderr: str) -> Reason:
    """Class of a failure from a tool's stderr."""
    text = stderr.lower()
    return next((reason for reason, phrases in _PHRASES if any(p in text for p in phrases)), Reason.OTHER)


def run_tool(
    argv: Sequence[str],
    stdin: Iterable[bytes] = (),
    *,
    timeout: float = DEFAULT_TIMEOUT,
    environment: Mapping[str, str] | None = None,
    on_start: Callable[[int], None] = lambda _: None,
) -> str:
    """Run a command and return its standard output; an exit status other than 0 raises `HostError`.

    ``stdin`` is written as it is produced, so that the tool works while the rest is being rendered.
    ``environment`` is added to this process's own. ``on_start`` is called with the process ID before anything
    is written.
    """
    with _scratch() as out:
        _run_tool(argv, stdin, out, timeout, environment, on_start)
        return _read(out)


def run_lines(argv: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Iterator[bytes]:
    """Lines of a command's output, which may be larger than memory should hold at once; raises as `run_tool`."""
    with _scratch() as out:
        _run_tool(argv, (), out, DEFAULT_TIMEOUT, environment, lambda _: None)
        out.seek(0)
        yield from out


def _run_tool(
    argv: Sequence[str],
    stdin: Iterable[bytes],
    out: IO[bytes],
    timeout: float,
    environment: Mapping[str, str] | None,
    on_start: Callable[[int], None],
) -> None:
    with _scratch() as err:
        process = _start(argv, out, err, environment)
        status, timed_out = _finish(process, stdin, timeout, on_start)
        detail = _read(err)[-_STDERR_SHOWN:].strip() or f"exit status {status}"
    if timed_out:
        raise HostError(shlex.join(argv), f"no end after {timeout:g} s", Reason.TIMEOUT)
    if status:
        raise HostError(shlex.join(argv), detail, classify_stderr(detail))


def _scratch() -> IO[bytes]:
    """Temporary file in memory: a node's disk may be full or read-only."""
    try:
        return os.fdopen(os.memfd_create("output"), "w+b")
    except OSError as error:
        raise os_error("make a file in memory", error, Purpose.COMMAND) from error


def start_detached(argv: Sequence[str]) -> None:
    """Start a program, named by its path, that outlives this process: in a session of its own, with this one's standard error.

    Should it end earlier, a thread takes its exit status, so that no zombie stays. Raises `HostError`.
    """
    without_input = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    try:
        process = os.posix_spawn(argv[0], tuple(argv), os.environ, file_actions=without_input, setsid=True)
    except OSError as error:
        raise os_error(f"start {shlex.join(argv)}", error, Purpose.COMMAND) from error
    threading.Thread(target=_reap, args=(process,), name="reaper", daemon=True).start()


def _reap(process: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, 0)


def _start(
    argv: Sequence[str], out: IO[bytes], err: IO[bytes], environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """Start a tool, which is the first of its name in PATH.

    Left to find it, Python would start the next of that name where the first cannot be started (ENOMEM): it may be another
    program, as ``iptables`` of a legacy and of an nftables-based package.
    """
    variables = {**os.environ, **(environment or {})}
    try:
        process = subprocess.Popen(
            argv,
            executable=shutil.which(argv[0], path=variables.get("PATH")),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            env=variables,
        )
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES):
            raise HostError(shlex.join(argv), error.strerror or str(error), Reason.UNSUPPORTED) from error
        raise os_error(shlex.join(argv), error, Purpose.COMMAND) from error
    assert process.stdin is not None, "stdin=PIPE makes a pipe"
    # An unprivileged user's share of pipe memory may be used up; a smaller pipe works too.
    with contextlib.suppress(OSError):
        fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    return process


def _finish(
    process: subprocess.Popen[bytes],
    stdin: Iterable[bytes],
    timeout: float,
    on_start: Callable[[int], None],
) -> tuple[int, bool]:
    """Exit status, and True if the process was killed at the time limit."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(timeout, expire)
    timer.daemon = True
    timer.start()
    try:
        on_start(process.pid)
        _feed(process, stdin)
        return process.wait(), expired.is_set()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        timer.cancel()


def _feed(process: subprocess.Popen[bytes], stdin: Iterable[bytes]) -> None:
    pipe = process.stdin
    if pipe is None:
        return
    try:
        with pipe:
            for chunk in stdin:
                pipe.write(chunk)
    except BrokenPipeError:
        return  # the tool exited before reading all: exit status and stderr give the reason


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def read_file(path: str) -> str:
    """Text of a small file, such as one of /proc.  Raises `HostError` MISSING if there is none."""
    try:
        return Path(path).read_text()
    except OSError as error:
        raise os_error(f"read {path}", error) from error


def write_file(path: str, text: str) -> None:
    """Write an existing file of /proc or /sys.  Raises `HostError` when the kernel refuses."""
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise os_error(f"write {path}", error) from error


def read_sysctl(name: str) -> str:
    """Value of a sysctl, named as ``net/ipv4/ip_forward``.  Raises `HostError` MISSING if there is none."""
    try:
        # three system calls instead of a file object's ten: an idle daemon does little else
        descriptor = os.open(f"{_SYSCTL_ROOT}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 4096).decode().strip()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise os_error(f"read sysctl {name}", error) from error


def write_sysctl(name: str, value: str) -> None:
    """Set a sysctl; nothing is written when it has that value already."""
    if read_sysctl(name) == value:
        return
    try:
        (_SYSCTL_ROOT / name).write_text(value)
    except OSError as error:
        raise os_error(f"write sysctl {name}={value}", error) from error


def reason_of(error: OSError) -> Reason:
    """Class of a failure from an errno."""
    return _ERRNO_REASONS.get(error.errno or 0, Reason.OTHER)


def os_error(operation: str, error: OSError, purpose: Purpose = Purpose.FILE) -> HostError:
    """`HostError` for an OSError; a shortage of descriptors is counted under ``purpose``."""
    descriptors.count_shortage(error, purpose)
    detail = f"{error.strerror or error}{descriptors.shortage_hint(error)}"
    return HostError(operation, detail, reason_of(error))
