"""Clauses that the steps of a case may cite."""

from collections.abc import Iterator

from kproxy.conformance.binding.bind import Instance, bind_cases
from kproxy.conformance.binding.world import World
from kproxy.conformance.case import (
    Case,
    ContinuousProbe,
    Open,
    Probe,
    ReachedEndpoint,
    Reopen,
    Send,
)
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine.citations import JudgedStep, MismatchKind, cited_clauses

ALL = bind_cases(CATALOGUE)


def respects(whole: Case, step: JudgedStep) -> Iterator[MismatchKind]:
    """In which respects something may be found at a step."""
    yield from (MismatchKind.OUTCOME, MismatchKind.ANSWER)
    delivers = not isinstance(getattr(step, "expect", None), frozenset) or any(
        isinstance(seen, ReachedEndpoint)
        for seen in step.expect  # type: ignore[union-attr]
    )
    if isinstance(step, Probe | Open | ContinuousProbe | Send | Reopen) and delivers:
        yield from (MismatchKind.ENDPOINT, MismatchKind.SOURCE)
    if not isinstance(step, Probe):
        return
    last = [
        other for other in whole.steps if isinstance(other, Probe) and other.rebalances == step.rebalances
    ][-1]
    requested = {
        MismatchKind.COVERAGE: step.spread,
        MismatchKind.SHARES: step.even,
        MismatchKind.AFFINITY: step.sticky_group or (step.rebalances and last is step),
        MismatchKind.SOURCE_PORT: step.source_port_changed,
        MismatchKind.FOREIGN_MARK: step.mark,
        MismatchKind.OWN_MARK: step.mark,
    }
    yield from (respect for respect, it_is in requested.items() if it_is)


def citations(instance: Instance) -> Iterator[tuple[int, MismatchKind, tuple[str, ...]]]:
    """All that findings of a case may cite."""
    world = World(instance)
    for number, step in enumerate(instance.case.steps, 1):
        world.apply_step(step)
        if isinstance(step, JudgedStep):
            for respect in respects(instance.case, step):
                yield number, respect, cited_clauses(instance, world, step, respect)
