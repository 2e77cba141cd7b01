"""Judging: compares the observations of a step with its expectation, and records findings.

Also keeps the state that later steps are judged by. No I/O; `kproxy.conformance.engine.runner` has the testbed
observe, and `kproxy.conformance.engine.citations` selects the clauses that a finding cites. Theory of operation:

An observation is a *set* of outcomes, every one that its evidence allows; a step's expectation is a set of lawful
outcomes. The observation is lawful if they intersect. If not, `_mismatch_kind` names the respect in which it differs
(another endpoint, another source, no reply, ...), and each respect of a step's observations becomes one `Finding`,
since it breaks another clause.

Old or new until settled: between a change and the barrier after it, a proxy may have applied it or not, on each node
and in any order. So what continuous clients observe during a change is judged by the one expectation of their
`ContinuousProbe`, whose author lists what is lawful before, between and after all changes; any third outcome (a drop,
a refusal, a removed endpoint after its replacement) is a finding. All other steps are judged after the barrier
(`kproxy.conformance.testbeds.settling`) and have to match the new state exactly.

Some expectations are about several observations: coverage of the endpoints and uniform shares
(`kproxy.conformance.engine.sampling`; exact where a testbed is exhaustive), affinity of a client to an endpoint, held
flows that stay where they are. `InstanceProgress` keeps what these need from earlier steps.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.world import World
from kproxy.conformance.case import (
    CheckHealth,
    CheckLatency,
    CheckProxy,
    CheckTraces,
    ContinuousProbe,
    Lawful,
    Open,
    Ping,
    Probe,
    ReadSysctl,
    Reopen,
    SameEndpoint,
    Send,
    Step,
    Target,
    UnrelatedEntries,
    Vantage,
)
from kproxy.conformance.case.descriptions import describe_expectation, describe_lawful, describe_step
from kproxy.conformance.engine import convergence
from kproxy.conformance.engine.citations import JudgedStep, MismatchKind, cited_clauses
from kproxy.conformance.engine.convergence import LatencySample
from kproxy.conformance.engine.sampling import FALSE_ALARM_RATE, chi_square, chi_square_tail
from kproxy.conformance.testbed import HarnessError, Observation, Testbed
from kproxy.lab.probes.observation import Socket
from kproxy.model.network import Address, Family
from kproxy.spec.outcome import Delivered, Outcome

MOST_SHOWN = 3
"""Number of different observations that a text lists."""

Endpoint = tuple[Address, int]
TextStep = CheckHealth | CheckProxy | ReadSysctl | CheckTraces | UnrelatedEntries
"""Steps whose observation is a text."""
OutcomeStep = Probe | ContinuousProbe | Ping | Open | Send | Reopen
"""Steps whose observation is an outcome."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Unlawful observation; ``clauses``: those that it breaks, ``known``: the deviation that excuses it."""

    instance: Instance
    step: int
    what: str
    lawful: str
    seen: str
    clauses: tuple[str, ...]
    known: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Record of one check, lawful or not; ``at``: seconds since the lab's first change, ``lawful``: everything the step expects."""

    family: Family
    step: int
    what: str
    lawful: str
    seen: str
    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Difference between a step's expectation and an observation."""

    kind: MismatchKind
    lawful: str
    seen: str


@dataclass(slots=True)
class InstanceProgress:
    """State of a running instance: its world, observations and findings, duration."""

    instance: Instance
    world: World
    begun: float = field(default_factory=time.monotonic)
    observed: list[Observed] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    harness_error: str = ""
    seconds: float = 0.0
    sticky_endpoints: dict[tuple[Vantage, str], set[Endpoint]] = field(default_factory=dict)
    """Last endpoint of each sticky client; empty when it reached several."""
    sticky_since: dict[tuple[Vantage, str], float] = field(default_factory=dict)
    """Time before the last connections of each sticky client, on the monotonic clock."""
    batch_begun: float = field(default_factory=time.monotonic)
    """Time before the checks that are judged now."""
    rebalanced_endpoints: dict[str, dict[tuple[Vantage, Target], set[Endpoint]]] = field(default_factory=dict)
    open_flows: dict[str, Observation] = field(default_factory=dict)
    repeated_checks: list[tuple[int, UnrelatedEntries]] = field(default_factory=list)
    """`UnrelatedEntries` steps, checked again after every change in the lab."""


def judge_step(
    testbed: Testbed, progress: InstanceProgress, number: int, step: Step, seen: Sequence[Observation]
) -> None:
    """Judge the observations of a step, and record findings."""
    if isinstance(step, UnrelatedEntries) and (number, step) not in progress.repeated_checks:
        progress.repeated_checks.append((number, step))
    match step:
        case Probe():
            _judge_probe(testbed, progress, number, step, seen)
        case Open():
            progress.open_flows[step.flow] = seen[0]
            judge_outcomes(progress, number, step, step.expect, seen)
        case Send():
            _judge_send(progress, number, step, seen[0])
        case Reopen():
            progress.open_flows[step.flow] = seen[0]
            judge_outcomes(progress, number, step, step.expect, seen)
        case Ping() | ContinuousProbe():
            judge_outcomes(progress, number, step, step.expect, seen)
        case CheckLatency() if not convergence.meets_objective(latency_samples(testbed, progress)):
            _add_finding(
                progress,
                number,
                step,
                Mismatch(MismatchKind.OUTCOME, convergence.latency_objective(), seen[0].text),
            )
        case CheckHealth() | CheckProxy() | ReadSysctl() | CheckTraces() | UnrelatedEntries():
            _judge_text(progress, number, step, seen[0].text)
        case _:
            pass


def _judge_text(progress: InstanceProgress, number: int, step: TextStep, text: str) -> None:
    if text != (lawful := describe_expectation(step)):
        _add_finding(progress, number, step, Mismatch(MismatchKind.OUTCOME, lawful, text))


def latency_samples(testbed: Testbed, progress: InstanceProgress) -> Sequence[LatencySample]:
    """Latencies that the lab has measured in the instance's family. Raises `HarnessError` when there is none."""
    found = [one for one in testbed.convergence() if one.family is progress.instance.family]
    if not any(one.isolated for one in found):
        raise HarnessError("no change that came alone was timed")
    return found


def _judge_probe(
    testbed: Testbed, progress: InstanceProgress, number: int, step: Probe, seen: Sequence[Observation]
) -> None:
    judge_outcomes(progress, number, step, step.expect, seen)
    if step.spread:
        _judge_spread(testbed, progress, number, step, seen)
    if step.even:
        _judge_even(testbed, progress, number, step, seen)
    if step.sticky_group and not testbed.exhaustive:
        _judge_sticks(progress, number, step, seen)
    if step.source_port_changed and not testbed.exhaustive and not any(o.source_port_changed for o in seen):
        lawful, text = "another source port for some", f"{len(seen)} times the sender's own"
        _add_finding(progress, number, step, Mismatch(MismatchKind.SOURCE_PORT, lawful, text))
    if step.mark and not testbed.exhaustive:
        _judge_mark(progress, number, step, seen)
    if step.rebalances:
        _judge_rebalancing(progress, number, step, seen)


def judge_outcomes(
    progress: InstanceProgress, number: int, step: OutcomeStep, lawful: Lawful, seen: Sequence[Observation]
) -> None:
    """Compare observations with lawful outcomes; each kind of mismatch is a finding, since it breaks another clause."""
    outcomes = progress.instance.outcomes(lawful, _target(progress, step))
    strange: dict[MismatchKind, list[str]] = {}
    for one in seen:
        if not one.outcomes & outcomes:
            strange.setdefault(_mismatch_kind(one, outcomes), []).append(one.text)
    for respect, texts in strange.items():
        _add_finding(
            progress, number, step, Mismatch(respect, describe_lawful(lawful), _count_texts(iter(texts)))
        )


def _mismatch_kind(seen: Observation, lawful: Collection[Outcome]) -> MismatchKind:
    """Kind of difference between an unlawful observation and all lawful outcomes."""
    endpoints = {(one.address, one.port) for one in lawful if isinstance(one, Delivered)}
    if seen.endpoint in endpoints:
        return MismatchKind.SOURCE
    if seen.endpoint is not None and endpoints:
        return MismatchKind.ENDPOINT
    return MismatchKind.OUTCOME if seen.outcomes else MismatchKind.ANSWER


def _judge_mark(progress: InstanceProgress, number: int, step: Probe, seen: Sequence[Observation]) -> None:
    """Judge fwmarks: bits set by others are preserved when a packet leaves the node, and no bit is added."""
    lawful = f"to leave the node with mark {step.mark:#x}"
    marks = [mark for one in seen for mark in one.marks]
    strange: dict[MismatchKind, list[int | None]] = {
        MismatchKind.FOREIGN_MARK: [mark for mark in marks if mark is None or step.mark & ~mark],
        MismatchKind.OWN_MARK: [mark for mark in marks if mark is not None and mark & ~step.mark],
    }
    for respect, wrong in strange.items():
        if wrong:
            text = _count_texts(map(_describe_mark, wrong))
            _add_finding(progress, number, step, Mismatch(respect, lawful, text))


def _describe_mark(mark: int | None) -> str:
    return (
        "left with another mark (which, Linux reports from 5.19 on), or was sent by another process"
        if mark is None
        else f"left with mark {mark:#x}"
    )


def _target(progress: InstanceProgress, step: OutcomeStep) -> Target:
    if isinstance(step, Send | Reopen):
        holds = (s for s in progress.instance.case.steps if isinstance(s, Open) and s.flow == step.flow)
        return next(holds).to
    return step.to


def _judge_spread(
    testbed: Testbed, progress: InstanceProgress, number: int, step: Probe, seen: Sequence[Observation]
) -> None:
    """Judge coverage: each endpoint group must have been reached, or each endpoint where the testbed is exhaustive.

    Not judged when no endpoint replied at all, which is a finding of its own.
    """
    met = _endpoints(seen)
    groups = progress.instance.groups(step.expect, step.to)
    short = [group for group in groups if (group - met if testbed.exhaustive else not group & met)]
    if met and short:
        text = f"{len(seen)} tries never reached {'; '.join(sorted(map(_first_of, short)))}"
        lawful = f"every one of {describe_lawful(step.expect)}"
        _add_finding(progress, number, step, Mismatch(MismatchKind.COVERAGE, lawful, text))


def _lawful_endpoints(progress: InstanceProgress, step: Probe) -> set[Endpoint]:
    lawful = progress.instance.outcomes(step.expect, step.to)
    return {(o.address, o.port) for o in lawful if isinstance(o, Delivered)}


def _judge_even(
    testbed: Testbed, progress: InstanceProgress, number: int, step: Probe, seen: Sequence[Observation]
) -> None:
    """Judge shares: equal probabilities where these are known, else counts that pass a chi-square test."""
    lawful_endpoints = sorted(_lawful_endpoints(progress, step), key=str)
    lawful = f"each of {len(lawful_endpoints)} endpoints as often as the others"
    if testbed.exhaustive:
        chances = {one: sum(o.probability for o in seen if o.endpoint == one) for one in lawful_endpoints}
        if len(set(chances.values())) > 1:
            _add_finding(progress, number, step, Mismatch(MismatchKind.SHARES, lawful, _shares(chances)))
        return
    met = Counter(o.endpoint for o in seen)
    counts = {one: met[one] for one in lawful_endpoints}
    if (
        any(counts.values())
        and (luck := chi_square_tail(chi_square(counts.values()), len(lawful_endpoints) - 1))
        < FALSE_ALARM_RATE
    ):
        text = f"{_shares(counts)} of {len(seen)}; chance does so with a probability of {luck:.0e}"
        _add_finding(progress, number, step, Mismatch(MismatchKind.SHARES, lawful, text))


def _judge_sticks(progress: InstanceProgress, number: int, step: Probe, seen: Sequence[Observation]) -> None:
    """Judge affinity: a client keeps its endpoint; a move is a finding at the step where it happened only.

    On a machine so slow that the affinity may have been over since the client's last connection nothing is judged.
    """
    key = (step.sender, step.sticky_group)
    elapsed = time.monotonic() - progress.sticky_since.get(key, progress.batch_begun)
    progress.sticky_since[key] = progress.batch_begun
    held = progress.open_flows.get(step.sticky_group)
    first = {held.endpoint} if held and held.endpoint else set()
    before, met = progress.sticky_endpoints.get(key, first), _endpoints(seen)
    if len(before | met) > 1:
        lasts = _affinity_seconds(progress, step)
        if elapsed >= lasts:
            progress.harness_error = (
                f"step {number}: this machine took {elapsed:.1f} s from one connection of a client to its next, and the affinity "
                f"lasts {lasts:g} s: run the case again while nothing else computes"
            )
            return
        lawful = f"{_names(before)}, as before" if before else "one endpoint each time"
        text = f"{len(seen)} connections reached {_names(met)}"
        _add_finding(progress, number, step, Mismatch(MismatchKind.AFFINITY, lawful, text))
    progress.sticky_endpoints[key] = met or before if len(met) < 2 else set()


def _affinity_seconds(progress: InstanceProgress, step: Probe) -> float:
    """Seconds that the Service's ClientIP affinity lasts; infinite where an endpoint is kept for another reason."""
    service = progress.world.objects.get(("Service", progress.instance.namespace, step.to.service), {})
    configured = service.get("spec", {}).get("sessionAffinityConfig", {})
    return float(configured.get("clientIP", {}).get("timeoutSeconds", math.inf))


def _judge_rebalancing(
    progress: InstanceProgress, number: int, step: Probe, seen: Sequence[Observation]
) -> None:
    """Judge rebalancing at the last probe of the name: at least one client must have reached more than one endpoint."""
    met = progress.rebalanced_endpoints.setdefault(step.rebalances, {})
    met.setdefault((step.sender, step.to), set()).update(_endpoints(seen))
    steps = enumerate(progress.instance.case.steps, 1)
    last = max(n for n, other in steps if isinstance(other, Probe) and other.rebalances == step.rebalances)
    if number == last and all(len(endpoints) == 1 for endpoints in met.values()):
        same = "; ".join(f"{sender} always {_names(ends)}" for (sender, _), ends in met.items())
        lawful = "another endpoint for some client, as time has run out between"
        _add_finding(progress, number, step, Mismatch(MismatchKind.AFFINITY, lawful, same))


def _judge_send(progress: InstanceProgress, number: int, step: Send, seen: Observation) -> None:
    if not isinstance(step.expect, SameEndpoint):
        judge_outcomes(progress, number, step, step.expect, [seen])
        return
    before = progress.open_flows[step.flow]
    if seen.endpoint is None or seen.endpoint != before.endpoint:
        _add_finding(
            progress, number, step, Mismatch(MismatchKind.OUTCOME, f"still {before.text}", seen.text)
        )


def _add_finding(progress: InstanceProgress, number: int, step: JudgedStep, mismatch: Mismatch) -> None:
    broken = cited_clauses(progress.instance, progress.world, step, mismatch.kind)
    progress.findings.append(
        Finding(progress.instance, number, describe_step(step), mismatch.lawful, mismatch.seen, broken)
    )


def _endpoints(seen: Sequence[Observation]) -> set[Endpoint]:
    return {o.endpoint for o in seen if o.endpoint is not None}


def _names(endpoints: Iterable[Endpoint]) -> str:
    return ", ".join(sorted(str(Socket(address, port)) for address, port in endpoints))


def _first_of(group: Collection[Endpoint]) -> str:
    """Text of a group: its endpoint, or the first one and their number."""
    first = min(group, key=lambda endpoint: (endpoint[0].version, int(endpoint[0]), endpoint[1]))
    return _names([first]) if len(group) == 1 else f"any of {len(group)} from {_names([first])} on"


def _shares(shares: Mapping[Endpoint, object]) -> str:
    return ", ".join(f"{Socket(address, port)} {share}" for (address, port), share in shares.items())


def summarise_observations(seen: Sequence[Observation]) -> str:
    """Text of the observations with counts, in an order that does not depend on time."""
    return _shorten(sorted(Counter(o.stable_text or o.text for o in seen).items()))


def _count_texts(texts: Iterator[str]) -> str:
    return _shorten(list(Counter(texts).items()))


def _shorten(counts: Sequence[tuple[str, int]]) -> str:
    shown = [f"{n} x {text}" if n > 1 else text for text, n in counts]
    more = [f"and {len(shown) - MOST_SHOWN} more"] if len(shown) > MOST_SHOWN else []
    return "; ".join([*shown[:MOST_SHOWN], *more])
