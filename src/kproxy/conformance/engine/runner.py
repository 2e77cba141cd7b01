"""Runner: executes cases on a testbed, all side by side, in rounds, and has the observations judged.

Theory of operation. Changing objects is cheap, and so is a probe; expensive is the barrier between them, since a
proxy has to have applied a change on all nodes before a probe proves anything. Cases share no object and no address
(`binding.bind`), so they can share barriers. `split_rounds` divides the steps of each case where a change follows a
check; then round by round:

1. *Change*: the changes of all cases in this round are written at once (`Testbed.change`), also restarts and faults.
2. *Settle*: one barrier (`Testbed.settle`) returns when every node has applied everything.  While 1 and 2 last, the
   continuous probes of earlier steps connect without a pause; their observations are judged by their own expectation, which
   covers old and new (`kproxy.conformance.engine.judging`).  Afterwards all unrelated conntrack entries are checked again.
3. *Check*: the checks of all cases run concurrently; within one case consecutive probes run together, everything
   else in order, as a `Send` has to follow its `Open`.  Each observation is judged at once.
4. *Reprobe* (optional): checks with unlawful results are repeated for evidence, one at a time
   (`kproxy.conformance.engine.reprobe`).

A run costs as many barriers as its longest case has rounds, not the sum over cases. Errors are kept apart: a
subject's misbehaviour is a finding; a failed observation (`HarnessError`, a lab's or socket's error) breaks its
instance, which then runs no further check; an error of the whole testbed ends the run.
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
    CheckTraces,
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
from kproxy.conformance.case.descriptions import describe_case_count, describe_expectation, describe_step
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
    """Changes, then (after the barrier) checks with their step numbers."""

    mutations: tuple[Mutation, ...]
    checks: tuple[tuple[int, Step], ...]


def split_rounds(steps: Sequence[Step]) -> Iterator[Round]:
    """Rounds of a case: divided where a change follows a check."""
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

    ``log``: receives progress messages. ``reprobe``: repeat checks with unlawful results after their round, for
    evidence (`kproxy.conformance.engine.reprobe`). A subject's failure never raises; `HarnessError` of one instance
    is recorded in it, of the whole testbed is raised.
    """
    running = [InstanceProgress(instance, World(instance)) for instance in instances]
    plans = [list(split_rounds(instance.case.steps)) for instance in instances]
    total = max(map(len, plans), default=0)
    reprober = Reprober(testbed)
    for number in range(total):
        current = [(p, plan[number]) for p, plan in zip(running, plans, strict=True) if number < len(plan)]
        log(f"round {number + 1}/{total}: changing objects of {describe_case_count(len(current))}")
        changes = [change for p, r in current for step in r.mutations for change in p.world.apply_step(step)]
        if changes or number == 0:  # a proxy that is still starting lets every packet pass
            clients = [
                (p, n, step) for p, r in current if r.mutations for n, step in _continuous_probes(p, r)
            ]
            await _apply_changes(testbed, changes, clients)
            await asyncio.gather(*(_check_unrelated_entries(testbed, progress) for progress in running))
        log(f"round {number + 1}/{total}: running {sum(len(r.checks) for _, r in current)} checks")
        await asyncio.gather(*(_run_checks(testbed, p, r.checks) for p, r in current))
        if reprobe:
            await _reprobe(reprober, [progress for progress, _ in current])
    return running


async def _reprobe(reprober: Reprober, current: Sequence[InstanceProgress]) -> None:
    """Reprobe each case in its first family before any in its second: the time budget may run out."""
    for progress in sorted(current, key=lambda one: one.instance.family is not one.instance.case.families[0]):
        await reprober.reprobe(
            progress.instance, [(found.step, found.clauses) for found in progress.findings]
        )


def _continuous_probes(progress: InstanceProgress, coming: Round) -> Iterator[tuple[int, ContinuousProbe]]:
    """Continuous probes that run during a round's changes: those of earlier steps."""
    steps = enumerate(progress.instance.case.steps, 1)
    coming_ones = {number for number, _ in coming.checks}
    first = min(coming_ones, default=len(progress.instance.case.steps) + 1)
    return ((number, step) for number, step in steps if isinstance(step, ContinuousProbe) and number < first)


async def _apply_changes(
    testbed: Testbed,
    changes: Sequence[Change],
    continuous: Sequence[tuple[InstanceProgress, int, ContinuousProbe]],
) -> None:
    """Make changes and wait until they are applied; judge the observations of continuous clients meanwhile."""
    able = [entry for entry in continuous if not entry[0].harness_error]
    clients = [continuous_probes.ContinuousClient(progress.instance, step) for progress, _, step in able]
    async with continuous_probes.probing(testbed, clients):
        await testbed.change(changes)
        await testbed.settle()
    for (progress, number, step), client in zip(able, clients, strict=True):
        progress.harness_error = progress.harness_error or client.harness_error
        judge_outcomes(progress, number, step, step.expect, client.seen)


async def _check_unrelated_entries(testbed: Testbed, progress: InstanceProgress) -> None:
    """Check unrelated conntrack entries, after every change of any case; each gives one finding at most."""
    found = {finding.step for finding in progress.findings}
    for number, step in list(progress.repeated_checks):
        if not progress.harness_error and number not in found:
            seen = await testbed.watch_entries(progress.instance, step)
            judge_step(testbed, progress, number, step, [seen])


async def _run_checks(
    testbed: Testbed, progress: InstanceProgress, checks: Sequence[tuple[int, Step]]
) -> None:
    """Run one case's checks of a round: consecutive probes concurrently, all else in order.

    Stops at the first harness error, since later results would be meaningless.
    """
    started = time.monotonic()
    for batch in _batches(checks):
        if progress.harness_error:
            break
        begun = progress.batch_begun = time.monotonic()
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
        case ReadSysctl() | CheckTraces() | UnrelatedEntries() | CheckLatency():
            return [await _observe_node(testbed, progress, step)]
        case Wait(seconds=seconds):
            await asyncio.sleep(seconds)
        case StopListening() | OutOfWindow():
            await testbed.act(progress.instance, step)
        case _:
            raise AssertionError(step)
    return []


async def _observe_node(
    testbed: Testbed,
    progress: InstanceProgress,
    step: ReadSysctl | CheckTraces | CheckLatency | UnrelatedEntries,
) -> Observation:
    match step:
        case UnrelatedEntries():
            return await testbed.watch_entries(progress.instance, step)
        case CheckLatency():
            return Observation(frozenset(), convergence.describe_latency(latency_samples(testbed, progress)))
        case ReadSysctl() | CheckTraces():
            return Observation(frozenset(), await testbed.read_node(step))


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
    """Number of connections for a probe (`kproxy.conformance.engine.sampling`)."""
    ways = len(probe.expect)
    if ways < 2:
        return probe.count
    covering = coverage_sample(ways) if probe.spread else 1
    return max(probe.count, covering, uniformity_sample(ways) if probe.even else 1)
