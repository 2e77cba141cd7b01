"""Cost of a program and its children: CPU time and memory, from /proc.

Children are found by their session, which `kproxy.lab.processes.spawn` gives each program of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
_SESSION, _USER, _CHILDREN_SYSTEM, _RESIDENT = 3, 11, 14, 21
"""Places in /proc/PID/stat after the command; between user and children's system time lie the other two."""


@dataclass(frozen=True, slots=True)
class _Stat:
    pid: int
    session: int
    cpu: float
    resident: int


class Tree:
    """A program started as leader of its session, and all that descends from it."""

    def __init__(self, pid: int) -> None:
        """``pid``: the leader's."""
        self.pid = pid
        self.peak = 0
        """Most resident bytes of all together that `watched` has seen."""

    def cpu(self) -> float:
        """CPU seconds (user and system) of all, ended children that were waited for included."""
        return sum(member.cpu for member in self._members())

    def daemon_peak(self) -> int:
        """Most resident bytes the leader has ever had (VmHWM)."""
        return self._of_leader("VmHWM:")

    def daemon_resident(self) -> int:
        """Resident bytes of the leader now (VmRSS)."""
        return self._of_leader("VmRSS:")

    def _of_leader(self, name: str) -> int:
        for line in (_PROC / str(self.pid) / "status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
        raise ProcessLookupError(self.pid)

    @contextmanager
    def watched(self, seconds: float = 0.1) -> Iterator[None]:
        """Context that samples the memory of all processes every ``seconds``; a sample costs some 2 ms of CPU time."""
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(ended, seconds), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def _watch(self, ended: threading.Event, seconds: float) -> None:
        while not ended.wait(seconds):
            self.peak = max(self.peak, self._resident())

    def _resident(self) -> int:
        """A child that has not yet become another program shares its parent's memory: it does not count."""
        members = list(self._members())
        leader = _command(self.pid)
        return sum(m.resident for m in members if m.pid == self.pid or _command(m.pid) != leader)

    def _members(self) -> Iterator[_Stat]:
        for entry in os.scandir(_PROC):
            if entry.name.isdecimal() and (stat := _stat(int(entry.name))) and stat.session == self.pid:
                yield stat


def _stat(pid: int) -> _Stat | None:
    with suppress(OSError):
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        cpu = sum(map(int, fields[_USER : _CHILDREN_SYSTEM + 1])) * _TICK
        return _Stat(pid, int(fields[_SESSION]), cpu, int(fields[_RESIDENT]) * _PAGE)
    return None


def _command(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""
