"""Programs of the lab: the proxies under test, running inside a node's network namespace.

A `Process` has its own process group and session, writes its output to a file, and is killed by
the kernel when the lab's process dies.  It shares the machine's files and processes; only its
network is the node's, and its xtables lock is its own.
"""

from __future__ import annotations

import asyncio
import enum
import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kproxy.lab.namespaces import LabError, Namespace, communicate
from kproxy.model.network import Address

DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
_PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
_BACKLOG = 128


class Xtables(enum.Enum):
    """Variant of ``iptables`` and its siblings."""

    LEGACY = "xtables-legacy-multi"
    NFT = "xtables-nft-multi"


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that a process holds: open descriptors, threads, and resident memory in MiB."""

    descriptors: int
    threads: int
    memory: int


class Process:
    """Program started by `spawn`."""

    def __init__(self, argv: Sequence[str], popen: subprocess.Popen[bytes], log: Path) -> None:
        self.argv, self.log = tuple(argv), log
        self._popen = popen

    @property
    def pid(self) -> int:
        """Process ID, which is its process group's."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Exit status (negative: the signal), or None while it runs."""
        return self._popen.poll()

    def usage(self) -> Usage:
        """Resources that it holds now, without its children (proc(5)). Raises `LabError` when it has ended."""
        place = Path(f"/proc/{self.pid}")
        try:
            status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
            descriptors = len(os.listdir(place / "fd"))  # noqa: PTH208 (their number alone)
            return Usage(descriptors, int(status["Threads"]), int(status["VmRSS"].split()[0]) >> 10)
        except (OSError, KeyError) as error:
            raise LabError(f"process {self.pid} ({shlex.join(self.argv)}) has ended") from error

    def kill(self) -> None:
        """Kill the process group (SIGKILL); nothing when it has ended."""
        self.signal(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the process group (SIGSTOP) until `resume`."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a stopped process group (SIGCONT)."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group; nothing when it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    async def wait(self) -> int:
        """Wait for its end; returns the exit status."""
        return await wait_finished(self._popen)


async def wait_finished(popen: subprocess.Popen[bytes]) -> int:
    """Wait for a program's end without blocking the event loop; returns its exit status."""
    loop = asyncio.get_running_loop()
    descriptor = os.pidfd_open(popen.pid) if popen.poll() is None else -1
    if descriptor < 0:
        return popen.wait()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return popen.wait()


def spawn(
    argv: Sequence[str],
    namespace: Namespace,
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    path_prefix: Path | None = None,
    descriptors: Sequence[int] = (),
) -> Process:
    """Start a program inside a namespace; output is appended to ``log``.

    ``env`` is added to this process's environment, and ``XTABLES_LOCKFILE`` is a file beside the log. ``path_prefix``
    goes in front of PATH (see `xtables_directory`). ``descriptors`` stay open in it. Call it from a thread that lives
    as long as the program: the kernel kills it with that thread (but not its children; `Process.kill` ends the whole
    group). A program that does not exist ends with status 127 and an error in the log.
    """
    environment = {**os.environ, "XTABLES_LOCKFILE": str(xtables_lock_file(log)), **(env or {})}
    if path_prefix is not None:
        environment["PATH"] = f"{path_prefix}:{environment.get('PATH', os.defpath)}"
    options: dict[str, object] = {
        "env": environment,
        "start_new_session": True,
        "pass_fds": tuple(descriptors),
    }
    with log.open("ab") as output:
        options |= {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        try:
            popen = namespace.start([*DIE_WITH_PARENT, *argv], **options)
        except FileNotFoundError as error:
            raise LabError("setpriv is needed to start programs in the lab: install util-linux") from error
    return Process(argv, popen, log)


def run_after(ready: Sequence[str], argv: Sequence[str]) -> list[str]:
    """Command line that waits until the command ``ready`` succeeds; empty: the command line itself."""
    if not ready:
        return list(argv)
    waiting = f'until {shlex.join(ready)} >/dev/null 2>&1; do sleep 0.05; done; exec "$@"'
    return ["sh", "-c", waiting, "sh", *argv]


def kill_in(namespace: Namespace, text: str) -> None:
    """Kill the processes inside (SIGKILL) whose command line has a text; one that ends meanwhile is no error."""
    inside = Path(namespace.path).stat().st_ino
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if text in command and (entry / "ns/net").stat().st_ino == inside:
                os.kill(int(entry.name), signal.SIGKILL)


def xtables_lock_file(log: Path) -> Path:
    """Lock file of the iptables tools that a program with this log runs (iptables-legacy alone takes it)."""
    return log.with_suffix(".xtables.lock")


def xtables_directory(directory: Path, variant: Xtables) -> Path:
    """Fill a directory with ``iptables`` and its siblings as links to one variant; returns it.

    Raises `LabError` when that variant is not installed.
    """
    program = shutil.which(variant.value, path=_search_path())
    if program is None:
        raise LabError(f"{variant.value} is not installed: install the iptables package")
    directory.mkdir(parents=True, exist_ok=True)
    for tool in ("iptables", "ip6tables"):
        for name in (tool, f"{tool}-save", f"{tool}-restore"):
            with suppress(FileExistsError):
                (directory / name).symlink_to(program)
    return directory


def _search_path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin:/usr/local/sbin"


async def run_in(namespace: Namespace, argv: Sequence[str], stdin: str = "", **options: object) -> str:
    """Run a program inside to its end without blocking the event loop; returns its output.

    Raises `LabError` with its stderr when it fails.  A caller that is cancelled does not wait; a thread still does.
    """
    process = namespace.start(argv, **_PIPES, **options)
    ended = asyncio.get_running_loop().run_in_executor(None, communicate, process, stdin)
    return await asyncio.shield(ended)


def listen_in(namespace: Namespace, address: Address, port: int = 0) -> socket.socket:
    """A listening TCP socket inside, for a server of this process to serve (port 0: a free one)."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    server = namespace.socket(family, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((str(address), port))
    server.listen(_BACKLOG)
    return server
