"""Options of ``kproxy simulate`` as one value: the subject, and which universes it plays.  Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kproxy.conformance.case import Feature
from kproxy.documents import TEXT
from kproxy.universes.claims import claimed_part
from kproxy.universes.draw import draw_schedule
from kproxy.universes.schedule import Schedule
from kproxy.universes.stop import Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """Subject, and its universes: those of seeds, or of a file."""

    proxy: str
    binary: str
    mode: str
    """Empty: all of the subject's, each in turn."""
    iptables: str
    other_proxy: str
    other_binary: str
    """Its other version; both empty for none."""
    seeds: range
    length: float | None
    """Seconds of a seed's universe at most."""
    replay: Path | None
    """Schedule that is played instead of seeds."""
    results: Path | None
    """File for a line of each universe."""
    until: float | None
    """Seconds at which each universe is stopped and read."""
    commands: Sequence[str]
    """Commands that are run there, each after its namespace."""
    shell: bool
    """True: also what standard input has."""
    parallel: int
    """0: one for each processor."""
    shrink: bool
    directory: Path
    """Where failing schedules are written, and what was read at ``until``."""
    uml_kernel: str
    form: str = TEXT

    @property
    def has_other(self) -> bool:
        """True if there is another version."""
        return bool(self.other_proxy or self.other_binary)

    @property
    def problem(self) -> str:
        """Which options do not go together, empty for none."""
        if self.shell and not self.stop:
            return "--shell needs the moment: give --until SECONDS"
        if self.length and self.has_other:
            return "--length: another version is run in the calm, which comes late: leave the length out"
        if self.length and self.replay:
            return "--length: a schedule of a file is played as it is: leave the length out"
        return ""

    def schedules(self, features: frozenset[Feature]) -> Iterator[Schedule]:
        """Schedules of the seeds, for a subject with these features."""
        for seed in self.seeds:
            drawn = draw_schedule(seed, seconds=self.length or math.inf, versions=self.has_other)
            yield claimed_part(drawn, features)

    @property
    def stop(self) -> Stop | None:
        """Where each universe is stopped."""
        return Stop(self.until, tuple(self.commands)) if self.until else None
