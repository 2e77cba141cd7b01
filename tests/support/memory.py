"""Memory of processes, as the kernel counts it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def memory_of(processes: Iterable[int]) -> int:
    """Bytes of their own (proportional set size, proc(5) smaps_rollup)."""
    total = 0
    for process in processes:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total
