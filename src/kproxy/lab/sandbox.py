"""Sandbox for an untrusted program: own PID and mount namespaces inside a node's network namespace.

Processes that it starts end with the sandbox; ``/proc/1`` is the sandbox's own first process, so the usual way into
the machine's network (``nsenter --target 1 --net``) leads back to the node; sysctls outside ``net`` and the root file
system are read-only, but for one folder; further mounts are visible inside only. It is no prison: root who unmounts
its ``/proc`` finds the machine's below it (`kproxy.lab.faults.machine_state` detects changes).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from kproxy.lab.namespaces import LabError, Namespace, create_namespace
from kproxy.lab.processes import DIE_WITH_PARENT, Process, wait_finished

LARGEST_FILE = 256 << 20
"""Largest file in bytes; a program that writes more into one gets SIGXFSZ (setrlimit(2), RLIMIT_FSIZE)."""

_UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
_OWN = """
set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro /
mount --bind /proc/sys /proc/sys
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,bind,ro /proc/sys
shift
"""
_KILL_OTHERS = """
for each in /proc/[0-9]*; do
    number=${each#/proc/}
    [ "$number" = 1 ] || [ "$number" = $$ ] || tr '\\0' ' ' <"$each/cmdline" | grep -qF -- "$1" || kill -KILL "$number"
done
"""
_OPTIONS = {"tmpfs": "-o size=256m"}
_READY = b"ready\n"
_ENDS_WITHIN = 10.0
_ENTERS_WITHIN = 0.1
"""Seconds after which processes that were still entering the sandbox are killed too."""


class Sandbox:
    """Sandbox in a node; made by `open_sandbox`."""

    def __init__(self, namespace: Namespace, first: subprocess.Popen[bytes]) -> None:
        self._namespace, self._first = namespace, first

    def command(self, argv: Sequence[str]) -> list[str]:
        """Command line that runs another inside, in this process's working directory.

        Its exit status is the other's. It stays as the other's parent, in the same process group.
        """
        limits = ("prlimit", f"--fsize={LARGEST_FILE}")
        return [*limits, *self._enter(), "env", f"--chdir={os.getcwd()}", *argv]  # noqa: PTH109 (a text)

    async def clear(self, spared: str = "") -> None:
        """Kill all processes inside (SIGKILL) but those whose command line has the text ``spared``; empty: all."""
        script = [_KILL_OTHERS, "kill", spared] if spared else ["kill -KILL -1"]
        killing = self._namespace.start([*self._enter(), "sh", "-c", *script], **_SILENT)
        await wait_finished(killing)

    async def end(self, processes: Iterable[Process], spared: str = "") -> None:
        """Kill processes inside as `clear` does until these (whose commands `command` made) have ended.

        Nothing is killed from outside: a parent killed with its child leaves it to the machine's first process, which
        may take seconds to reap it or never do, and until then the kernel keeps the sandbox.
        """
        await self.clear(spared)
        for process in processes:
            while not await _within(_ENTERS_WITHIN, process.wait()):
                process.resume()  # a stopped parent does not reap its child
                await self.clear(spared)

    async def close(self) -> None:
        """End the sandbox: the kernel kills all its processes with the first one."""
        assert self._first.stdin
        self._first.stdin.close()
        if not await _within(_ENDS_WITHIN, wait_finished(self._first)):
            self._first.kill()
        for stream in (self._first.stdout, self._first.stderr):
            assert stream
            stream.close()

    def _enter(self) -> list[str]:
        own = f"/proc/{self._first.pid}/ns"
        return ["nsenter", f"--mount={own}/mnt", f"--pid={own}/pid_for_children", "--"]


async def _within(seconds: float, end: Coroutine[object, object, int]) -> bool:
    """True if a process ends within ``seconds``."""
    try:
        await asyncio.wait_for(end, seconds)
    except TimeoutError:
        return False
    return True


_SILENT = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


async def open_sandbox(namespace: Namespace, folder: Path, mounts: Mapping[str, str]) -> Sandbox:
    """Make a sandbox in which ``folder`` is writable.

    ``mounts``: the type of file system (``mount --types``) for each mount point, which must exist. Call it from a
    thread that lives as long as the sandbox. Raises `LabError`.
    """
    lines = [
        f'mount -t {kind} {_OPTIONS.get(kind, "")} {kind} "${number}"'
        for number, kind in enumerate(mounts.values(), 1)
    ]
    script = "\n".join([_OWN, *lines, "echo ready", "exec cat"])
    argv = [*DIE_WITH_PARENT, *_UNSHARE, "sh", "-c", script, "sandbox", str(folder), *mounts]
    pipe = subprocess.PIPE
    try:
        first = namespace.start(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    except FileNotFoundError as error:
        raise LabError("setpriv and unshare are needed: install util-linux") from error
    assert first.stdout
    if await asyncio.to_thread(first.stdout.readline) != _READY:
        _, ready_line = first.communicate()
        raise LabError(
            f"no processes and mounts of a subject's own: {ready_line.decode(errors='replace').strip()}"
        )
    return Sandbox(namespace, first)


@cache
def sandbox_unavailable() -> str:
    """Reason why no sandbox can be made here; empty when it can.

    It runs in a thread, as the caller may have an event loop of its own.
    """
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(lambda: asyncio.run(_try())).result()
        except LabError as reason:
            return str(reason)
    return ""


async def _try() -> None:
    namespace = create_namespace("sandbox")
    try:
        with tempfile.TemporaryDirectory() as folder:
            await (await open_sandbox(namespace, Path(folder), {})).close()
    finally:
        namespace.close()
