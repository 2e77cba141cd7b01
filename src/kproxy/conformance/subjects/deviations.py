"""Known deviations of a subject: findings that a link excuses, and excuses that a run did not need.

Pure. A deviation excuses findings by the clauses that they name, and by their steps where it names some; never a
whole case.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from kproxy.conformance.engine.judging import Finding

Step = Annotated[int, msgspec.Meta(ge=1)]


class Excuse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Excuse for findings of cases (a glob over their IDs) that cite only these clauses, at these steps or at any."""

    case: Annotated[str, msgspec.Meta(min_length=1)]
    clauses: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    steps: tuple[Step, ...] = ()

    def matches(self, case: str) -> bool:
        """True if it applies to the case of that ID."""
        return fnmatch.fnmatchcase(case, self.case)

    def covers(self, finding: Finding) -> bool:
        """True if it excuses the finding."""
        at_step = not self.steps or finding.step in self.steps
        return (
            at_step and self.matches(finding.instance.case.id) and set(finding.clauses) <= set(self.clauses)
        )

    def descriptions(self) -> tuple[str, ...]:
        """Text of each clause and each step that it names."""
        return (*self.clauses, *map(self._at, self.steps))

    def used_descriptions(self, findings: Iterable[Finding]) -> set[str]:
        """Descriptions of the parts that these findings need."""
        covered = [finding for finding in findings if self.covers(finding)]
        steps = {self._at(finding.step) for finding in covered}
        return steps.union(*(finding.clauses for finding in covered))

    def _at(self, step: int) -> str:
        return f"{', '.join(self.clauses)} at step {step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketFinding:
    """Packet of a universe that was handled as nothing allows: the clauses it broke, its text, and that of what was seen.

    ``established``: it is not the first of its connection or socket; ``source_only``: its endpoint is lawful, and the source it saw
    is not; ``changing``: the rules of its Service may have changed meanwhile; ``faults``: names of those that its node had not
    recovered from.
    """

    clauses: Sequence[str]
    packet: str
    seen: str
    established: bool = False
    source_only: bool = False
    changing: bool = False
    faults: Sequence[str] = ()


class UniverseExcuse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Excuse for packets of universes (`kproxy.universes`) that cite one of these clauses and of which this was seen.

    ``seen``: a glob over the text of the observation; ``packet``: one over that of the packet (`host b to web node port localhost of b`);
    ``established``: only packets that are not the first of their connection or socket; ``source_only``: only packets at a lawful
    endpoint, which saw another source than it must; ``changing``: only packets that may have met rules which were being written:
    their Service changed at the same time, or a sync is late; ``during``: only while one of these faults
    (`kproxy.universes.schedule.FaultKind`, by name) lasts on the packet's node, or until it must have recovered.
    """

    clauses: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    seen: Annotated[str, msgspec.Meta(min_length=1)]
    packet: Annotated[str, msgspec.Meta(min_length=1)] = "*"
    established: bool = False
    source_only: bool = False
    changing: bool = False
    during: tuple[str, ...] = ()

    def covers(self, found: PacketFinding) -> bool:
        """True if it excuses the packet."""
        unmet = (
            self.established and not found.established,
            self.source_only and not found.source_only,
            self.changing and not found.changing,
            self.during and set(self.during).isdisjoint(found.faults),
        )
        return (
            not any(unmet)
            and not set(self.clauses).isdisjoint(found.clauses)
            and fnmatch.fnmatchcase(found.packet, self.packet)
            and fnmatch.fnmatchcase(found.seen, self.seen)
        )


class Deviation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deviation of a subject, in one of its modes or in all, with a link to the reason.

    ``sometimes``: only in some runs, so that a run which does not need it reports nothing. ``universes``: what it looks like
    in universes, which have no cases.
    """

    link: Annotated[str, msgspec.Meta(pattern="^https?://")]
    text: Annotated[str, msgspec.Meta(min_length=1)]
    excuses: tuple[Excuse, ...] = ()
    mode: str = ""
    sometimes: bool = False
    universes: tuple[UniverseExcuse, ...] = ()

    def __post_init__(self) -> None:
        if not self.excuses and not self.universes:
            raise ValueError(f"deviation {self.text!r} excuses nothing: give it excuses, or universes")

    def excuses_packet(self, mode: str, found: PacketFinding) -> bool:
        """True if it excuses a packet of a universe."""
        return self.mode in {"", mode} and any(one.covers(found) for one in self.universes)

    def excuses_for(self, case: str, mode: str) -> tuple[Excuse, ...]:
        """Excuses for a case in a mode."""
        return tuple(e for e in self.excuses if e.matches(case)) if self.mode in {"", mode} else ()

    def __str__(self) -> str:
        """Text and link."""
        return f"{self.text} ({self.link})"


def find_excuse(deviations: Iterable[Deviation], mode: str, finding: Finding) -> Deviation | None:
    """The deviation that excuses a finding, if any."""
    case = finding.instance.case.id
    return next((d for d in deviations if any(e.covers(finding) for e in d.excuses_for(case, mode))), None)


def excuse_usage(
    deviations: Iterable[Deviation], mode: str, case: str, findings: Sequence[Finding]
) -> Iterator[tuple[str, bool]]:
    """Each part of the excuses of a judged case, with its glob, and whether it was needed."""
    for deviation in deviations:
        for excuse in deviation.excuses_for(case, mode):
            used = excuse.used_descriptions(findings)
            yield from (
                (f"{excuse.case}: {part}", part in used)
                for part in excuse.descriptions()
                if part in used or not deviation.sometimes
            )
