"""Run cases on a testbed: all beside one another, phase by phase, and judge what is seen.

Cases share no object, so none waits for another: the first changes of *all* cases go in at once,
one barrier, then all their questions together; then the second changes, and so on.  A run costs
as many barriers as its longest case has rounds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.world import Change, World
from kproxy.conformance.case import (
    CheckHealth,
    CheckLatency,
    CheckProxy,
    ContinuousProbe,
    Mutation,
    Open,
    OutOfWindow,
    Ping,
    Probe,
    ReadSysctl,
    Reopen,
    Send,
    Step,
    StopListening,
    UnrelatedEntries,
    Wait,
)
from kproxy.conformance.case.descriptions import describe_expectation, describe_step
from kproxy.conformance.engine import continuous_probes, convergence
from kproxy.conformance.engine.judging import (
    InstanceProgress,
    Observed,
    judge_outcomes,
    judge_step,
    latency_samples,
    summarise_observations,
)
from kproxy.conformance.engine.reprobe import Reprober
from kproxy.conformance.engine.sampling import coverage_sample, uniformity_sample
from kproxy.conformance.testbed import HarnessError, Observation, Testbed
from kproxy.lab.namespaces import LabError


@dataclass(frozen=True, slots=True)
class Round:
    """Changes, then (after the barrier) questions, with their step numbers."""

    mutations: tuple[Mutation, ...]
    checks: tuple[tuple[int, Step], ...]


def split_rounds(steps: Sequence[Step]) -> Iterator[Round]:
    """Cut a case's steps where a change follows a question."""
    mutations: list[Mutation] = []
    checks: list[tuple[int, Step]] = []
    for number, step in enumerate(steps, 1):
        if isinstance(step, Mutation):
            if checks:
                yield Round(tuple(mutations), tuple(checks))
                mutations, checks = [], []
            mutations.append(step)
        else:
            checks.append((number, step))
    yield Round(tuple(mutations), tuple(checks))


async def run_instances(
    testbed: Testbed,
    instances: Sequence[Instance],
    log: Callable[[str], None] = lambda _: None,
    *,
    reprobe: bool = False,
) -> list[InstanceProgress]:
    """Run these instances side by side; one `InstanceProgress` each, in the same order.

    ``log`` is told in words what goes on.  ``reprobe``: what met something unlawful is asked once more after its
    round, for the evidence (`kproxy.conformance.engine.reprobe`).  Never raises for what a subject does; `HarnessError` of a
    single instance is noted in it, `HarnessError` of the testbed as a whole is raised.
    """
    running = [InstanceProgress(instance, World(instance)) for instance in instances]
    plans = [list(split_rounds(instance.case.steps)) for instance in instances]
    total = max(map(len, plans), default=0)
    reprober = Reprober(testbed)
    for number in range(total):
        current = [(p, plan[number]) for p, plan in zip(running, plans, strict=True) if number < len(plan)]
        log(f"round {number + 1}/{total}: changing objects of {len(current)} cases")
        changes = [change for p, r in current for step in r.mutations for change in p.world.apply_step(step)]
        if changes:
            clients = [
                (p, n, step) for p, r in current if r.mutations for n, step in _continuous_probes(p, r)
            ]
            await _apply_changes(testbed, changes, clients)
            await asyncio.gather(*(_check_unrelated_entries(testbed, progress) for progress in running))
        log(f"round {number + 1}/{total}: asking {sum(len(r.checks) for _, r in current)} questions")
        await asyncio.gather(*(_run_checks(testbed, p, r.checks) for p, r in current))
        if reprobe:
            await _reprobe(reprober, [progress for progress, _ in current])
    return running


async def _reprobe(reprober: Reprober, current: Sequence[InstanceProgress]) -> None:
    """Each case in its first family before any in its second: time may run out."""
    for progress in sorted(current, key=lambda one: one.instance.family is not one.instance.case.families[0]):
        await reprober.reprobe(
            progress.instance, [(found.step, found.clauses) for found in progress.findings]
        )


def _continuous_probes(progress: InstanceProgress, coming: Round) -> Iterator[tuple[int, ContinuousProbe]]:
    """The clients that a case has while it comes to a round: those of steps before it."""
    steps = enumerate(progress.instance.case.steps, 1)
    coming_ones = {number for number, _ in coming.checks}
    first = min(coming_ones, default=len(progress.instance.case.steps) + 1)
    return ((number, step) for number, step in steps if isinstance(step, ContinuousProbe) and number < first)


async def _apply_changes(
    testbed: Testbed,
    changes: Sequence[Change],
    continuous: Sequence[tuple[InstanceProgress, int, ContinuousProbe]],
) -> None:
    """Make changes and wait till they are applied; judge what steady clients met meanwhile."""
    able = [entry for entry in continuous if not entry[0].harness_error]
    clients = [continuous_probes.ContinuousClient(progress.instance, step) for progress, _, step in able]
    async with continuous_probes.probing(testbed, clients):
        await testbed.change(changes)
        await testbed.settle()
    for (progress, number, step), client in zip(able, clients, strict=True):
        progress.harness_error = progress.harness_error or client.harness_error
        judge_outcomes(progress, number, step, step.expect, client.seen)


async def _check_unrelated_entries(testbed: Testbed, progress: InstanceProgress) -> None:
    """After every change, of this case or another: each is found once."""
    found = {finding.step for finding in progress.findings}
    for number, step in list(progress.repeated_checks):
        if not progress.harness_error and number not in found:
            seen = await testbed.watch_entries(progress.instance, step)
            judge_step(testbed, progress, number, step, [seen])


async def _run_checks(
    testbed: Testbed, progress: InstanceProgress, checks: Sequence[tuple[int, Step]]
) -> None:
    """Put one case's questions of one round: probes in a row together, all else in order.

    Once the harness could not observe a case, later answers would rest on nothing: it is asked no more.
    """
    started = time.monotonic()
    for batch in _batches(checks):
        if progress.harness_error:
            break
        begun = time.monotonic()
        observing = [_observe(testbed, progress, step) for _, step in batch]
        answers = await asyncio.gather(*observing, return_exceptions=True)
        for (number, step), seen in zip(batch, answers, strict=True):
            _judge_or_record_error(testbed, progress, number, step, seen)
            _record_observed(progress, number, step, seen, begun)
    progress.seconds += time.monotonic() - started


def _batches(checks: Sequence[tuple[int, Step]]) -> Iterator[list[tuple[int, Step]]]:
    batch: list[tuple[int, Step]] = []
    for number, step in checks:
        if isinstance(step, Probe):
            batch.append((number, step))
            continue
        if batch:
            yield batch
        yield [(number, step)]
        batch = []
    if batch:
        yield batch


async def _observe(testbed: Testbed, progress: InstanceProgress, step: Step) -> Sequence[Observation]:
    match step:
        case Probe() | ContinuousProbe():
            probe = continuous_probes.as_probe(step)
            count = 1 if testbed.exhaustive else sample_size(probe)
            return await testbed.probe(progress.instance, probe, count)
        case Open():
            return [await testbed.open_flow(progress.instance, step)]
        case Send():
            return [await testbed.send_on_flow(progress.instance, step)]
        case Ping():
            return [await testbed.ping(progress.instance, step)]
        case CheckHealth() | CheckProxy():
            return [await testbed.check_health(progress.instance, step)]
        case Reopen():
            return [await testbed.reopen(progress.instance, step)]
        case ReadSysctl() | UnrelatedEntries() | CheckLatency():
            return [await _observe_node(testbed, progress, step)]
        case Wait(seconds=seconds):
            await asyncio.sleep(seconds)
        case StopListening() | OutOfWindow():
            await testbed.act(progress.instance, step)
        case _:
            raise AssertionError(step)
    return []


async def _observe_node(
    testbed: Testbed, progress: InstanceProgress, step: ReadSysctl | CheckLatency | UnrelatedEntries
) -> Observation:
    match step:
        case UnrelatedEntries():
            return await testbed.watch_entries(progress.instance, step)
        case CheckLatency():
            return Observation(frozenset(), convergence.describe_latency(latency_samples(testbed, progress)))
        case ReadSysctl():
            return Observation(frozenset(), await testbed.read_sysctl(step.node, step.name))


def _judge_or_record_error(
    testbed: Testbed,
    progress: InstanceProgress,
    number: int,
    step: Step,
    seen: Sequence[Observation] | BaseException,
) -> None:
    if isinstance(seen, HarnessError | LabError | OSError):
        progress.harness_error = progress.harness_error or continuous_probes.describe_unobserved(
            seen, f"step {number}, {describe_step(step)}"
        )
        return
    if isinstance(seen, BaseException):
        raise seen
    judge_step(testbed, progress, number, step, seen)


def _record_observed(
    progress: InstanceProgress,
    number: int,
    step: Step,
    seen: Sequence[Observation] | BaseException,
    begun: float,
) -> None:
    texts = f"not observed: {seen}" if isinstance(seen, BaseException) else summarise_observations(seen)
    if not texts:
        return
    progress.observed.append(
        Observed(
            family=progress.instance.family,
            step=number,
            what=describe_step(step),
            lawful=describe_expectation(step),
            seen=texts,
            at=begun - progress.begun,
            seconds=time.monotonic() - begun,
        )
    )


def sample_size(probe: Probe) -> int:
    """How many connections a probe takes, as `kproxy.conformance.engine.sampling` has it."""
    ways = len(probe.expect)
    if ways < 2:
        return probe.count
    covering = coverage_sample(ways) if probe.spread else 1
    return max(probe.count, covering, uniformity_sample(ways) if probe.even else 1)
