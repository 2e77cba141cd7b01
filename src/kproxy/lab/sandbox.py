"""A room for a program that nobody vouches for: processes and mounts of its own, beside the network of its node.

What it starts ends with the room, wherever it has gone; ``/proc/1`` is the room's own first process, so the
usual way into the machine's network (``nsenter --target 1 --net``) leads back to the node; sysctls outside ``net``
and the root file system are read-only, but for one folder; more may be mounted that nobody else sees.  It is no prison: root who unmounts his ``/proc`` finds
the machine's below it (`kproxy.lab.machine` tells then).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from kproxy.lab.namespaces import LabError, Namespace, create
from kproxy.lab.processes import DIE_WITH_PARENT, finished

LARGEST_FILE = 256 << 20
"""Bytes; who writes more into one file gets SIGXFSZ (setrlimit(2), RLIMIT_FSIZE)."""

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
_OPTIONS = {"tmpfs": "-o size=256m"}
_READY = b"ready\n"
_ENDS_WITHIN = 10.0


class Sandbox:
    """A room in a node; made by `open_sandbox`."""

    def __init__(self, namespace: Namespace, first: subprocess.Popen[bytes]) -> None:
        self._namespace, self._first = namespace, first

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs another in the room, in this process's working directory.

        Its exit status is the other's.  It stays as the other's parent, in the same process group.
        """
        limits = ("prlimit", f"--fsize={LARGEST_FILE}")
        return [*limits, *self._enter(), "env", f"--chdir={os.getcwd()}", *argv]  # noqa: PTH109 (a text)

    async def clear(self) -> None:
        """SIGKILL whatever still runs in the room."""
        everybody = self._namespace.start([*self._enter(), "sh", "-c", "kill -KILL -1"], **_SILENT)
        await finished(everybody)

    def close(self) -> None:
        """End all that is in the room: the kernel does so with the room's first process."""
        try:
            self._first.communicate(timeout=_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._first.kill()

    def _enter(self) -> list[str]:
        own = f"/proc/{self._first.pid}/ns"
        return ["nsenter", f"--mount={own}/mnt", f"--pid={own}/pid_for_children", "--"]


_SILENT = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def open_sandbox(namespace: Namespace, folder: Path, mounts: Mapping[str, str]) -> Sandbox:
    """Make a room in which ``folder`` can be written to.

    ``mounts``: the type of file system (``mount --types``) for each mount point, which must exist.
    Call it from a thread that lives as long as the room.  Raises `LabError`.
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
    if first.stdout.readline() != _READY:
        _, said = first.communicate()
        raise LabError(f"no processes and mounts of a subject's own: {said.decode(errors='replace').strip()}")
    return Sandbox(namespace, first)


@cache
def unavailable() -> str:
    """Why no room can be made here; empty when it can."""
    try:
        namespace = create("sandbox")
        try:
            with tempfile.TemporaryDirectory() as folder:
                open_sandbox(namespace, Path(folder), {}).close()
        finally:
            namespace.close()
    except LabError as reason:
        return str(reason)
    return ""
