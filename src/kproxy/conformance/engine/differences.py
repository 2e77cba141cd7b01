"""Differences between the observations of two subjects for the same packets. Pure.

Chance is no difference: the choice of the endpoint is the subject's, so of two sides that both deliver only endpoints
that both have chosen at least once are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import Probe
from kproxy.conformance.testbed import Observation
from kproxy.model.network import Address
from kproxy.spec.outcome import Delivered, Outcome, SourceIP

Answers = Sequence[Observation]
Reading = frozenset[SourceIP]
"""Source handlings that an observation is consistent with; empty for a source address that is neither's."""


@dataclass(frozen=True, slots=True)
class ProbeDifference:
    """Probe with different observations on two sides; ``unlawful``: for each, whether the specification forbids it."""

    instance: Instance
    probe: Probe
    seen: tuple[Answers, Answers]
    unlawful: tuple[bool, bool]


def outcome_kinds(answers: Iterable[Observation]) -> frozenset[str]:
    """Kinds of outcomes, as texts that do not depend on chance; for observations that can never be lawful their own text."""
    return frozenset(_kind(one) for one in answers)


def _kind(seen: Observation) -> str:
    found = {"delivered" if isinstance(one, Delivered) else one.value for one in seen.outcomes}
    if not found and seen.endpoint is not None:
        return "delivered with a strange source"
    return " or ".join(sorted(found)) or seen.text


def seen_sources(answers: Iterable[Observation]) -> Mapping[tuple[Address, int], frozenset[Reading]]:
    """Sources that each endpoint saw."""
    found: dict[tuple[Address, int], set[Reading]] = {}
    for one in answers:
        if one.endpoint is not None:
            reading = frozenset(o.source for o in one.outcomes if isinstance(o, Delivered))
            found.setdefault(one.endpoint, set()).add(reading)
    return {endpoint: frozenset(readings) for endpoint, readings in found.items()}


def _alike(one: frozenset[Reading], other: frozenset[Reading]) -> bool:
    """True if both sides may have done the same: a node's own address is consistent with either source handling."""
    pairs = ((one, other), (other, one))
    return all(any(a & b or a == b for b in theirs) for mine, theirs in pairs for a in mine)


def is_unlawful(answers: Iterable[Observation], lawful: frozenset[Outcome]) -> bool:
    """True if any observation is unlawful."""
    return any(not one.outcomes & lawful for one in answers)


def looks_different(one: Answers, other: Answers, lawful: frozenset[Outcome]) -> bool:
    """True if a probe is worth repeating: kinds or sources differ, or one side alone is unlawful."""
    return _summary(one, lawful) != _summary(other, lawful)


def _summary(side: Answers, lawful: frozenset[Outcome]) -> tuple[frozenset[str], frozenset[Reading], bool]:
    seen = frozenset(reading for readings in seen_sources(side).values() for reading in readings)
    return outcome_kinds(side), seen, is_unlawful(side, lawful)


def probe_difference(
    instance: Instance, probe: Probe, one: Answers, other: Answers
) -> ProbeDifference | None:
    """Difference between two sides, chance left out; None if there is none."""
    lawful = instance.outcomes(probe.expect, probe.to)
    unlawful = (is_unlawful(one, lawful), is_unlawful(other, lawful))
    mine, theirs = seen_sources(one), seen_sources(other)
    same_sources = all(_alike(mine[endpoint], theirs[endpoint]) for endpoint in mine.keys() & theirs.keys())
    if outcome_kinds(one) == outcome_kinds(other) and same_sources and unlawful[0] == unlawful[1]:
        return None
    return ProbeDifference(instance, probe, (one, other), unlawful)
