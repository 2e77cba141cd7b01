"""Run cases on a testbed: all beside one another, phase by phase, and judge what is seen.

Cases share no object, so none waits for another: the first changes of *all* cases go in at once,
one barrier, then all their questions together; then the second changes, and so on.  A run costs
as many barriers as its longest case has rounds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kproxy.conformance import steady
from kproxy.conformance.again import Again
from kproxy.conformance.bind import Instance
from kproxy.conformance.case import (
    CheckHealth,
    CheckProxy,
    Checkup,
    Deafen,
    Hold,
    Lawful,
    Mutation,
    OutOfWindow,
    Ping,
    Probe,
    ReadSysctl,
    Reopen,
    Steady,
    Step,
    Still,
    Target,
    Use,
    Vantage,
    Wait,
)
from kproxy.conformance.chance import FALSE_ALARM, chi_square, coverage_sample, even_sample, tail
from kproxy.conformance.testbed import Broken, Observation, Testbed
from kproxy.conformance.wording import demands, describe, describe_lawful
from kproxy.conformance.world import Change, World
from kproxy.lab.namespaces import LabError
from kproxy.lab.observation import Socket
from kproxy.net import Address, Family
from kproxy.spec.outcome import Delivered

MOST_SHOWN = 3
"""Different observations that a text tells."""

Endpoint = tuple[Address, int]
Judged = Probe | Steady | Ping | Hold | Use | Reopen
Compared = Checkup | ReadSysctl
"""Steps whose answer is a text."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing seen that is not lawful."""

    instance: Instance
    step: int
    what: str
    lawful: str
    seen: str
    clauses: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a question met, lawful or not; ``at``: seconds since the lab's first change, ``lawful``: all that it asks for."""

    family: Family
    step: int
    what: str
    lawful: str
    seen: str
    at: float
    seconds: float


@dataclass(slots=True)
class Progress:
    """One instance under way: its world, its findings, the time it took."""

    instance: Instance
    world: World
    begun: float = field(default_factory=time.monotonic)
    observed: list[Observed] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    broken: str = ""
    seconds: float = 0.0
    stuck: dict[tuple[Vantage, str], set[Endpoint]] = field(default_factory=dict)
    roamed: dict[str, dict[tuple[Vantage, Target], set[Endpoint]]] = field(default_factory=dict)
    held: dict[str, Observation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Round:
    """Changes, then (after the barrier) questions, with their step numbers."""

    mutations: tuple[Mutation, ...]
    questions: tuple[tuple[int, Step], ...]


def rounds(steps: Sequence[Step]) -> Iterator[Round]:
    """Cut a case's steps where a change follows a question."""
    mutations: list[Mutation] = []
    questions: list[tuple[int, Step]] = []
    for number, step in enumerate(steps, 1):
        if isinstance(step, Mutation):
            if questions:
                yield Round(tuple(mutations), tuple(questions))
                mutations, questions = [], []
            mutations.append(step)
        else:
            questions.append((number, step))
    yield Round(tuple(mutations), tuple(questions))


async def run(
    testbed: Testbed,
    instances: Sequence[Instance],
    tick: Callable[[str], None] = lambda _: None,
    *,
    again: bool = False,
) -> list[Progress]:
    """Run these instances side by side; one `Progress` each, in the same order.

    ``tick`` is told in words what goes on.  ``again``: what met something unlawful is asked once more after its
    round, for the evidence (`kproxy.conformance.again`).  Never raises for what a subject does; `Broken` of a
    single instance is noted in it, `Broken` of the testbed as a whole is raised.
    """
    running = [Progress(instance, World(instance)) for instance in instances]
    plans = [list(rounds(instance.case.steps)) for instance in instances]
    total = max(map(len, plans), default=0)
    second = Again(testbed)
    for number in range(total):
        current = [(p, plan[number]) for p, plan in zip(running, plans, strict=True) if number < len(plan)]
        tick(f"round {number + 1}/{total}: changing objects of {len(current)} cases")
        changes = [change for p, r in current for step in r.mutations for change in p.world.change(step)]
        if changes:
            clients = [(p, n, step) for p, r in current if r.mutations for n, step in _steady(p, r)]
            await _change(testbed, changes, clients)
        tick(f"round {number + 1}/{total}: asking {sum(len(r.questions) for _, r in current)} questions")
        await asyncio.gather(*(_ask(testbed, p, r.questions) for p, r in current))
        if again:
            await _ask_again(second, [progress for progress, _ in current])
    return running


async def _ask_again(second: Again, current: Sequence[Progress]) -> None:
    """Each case in its first family before any in its second: time may run out."""
    for progress in sorted(current, key=lambda one: one.instance.family is not one.instance.case.families[0]):
        await second.ask(progress.instance, [finding.step for finding in progress.findings])


def _steady(progress: Progress, coming: Round) -> Iterator[tuple[int, Steady]]:
    """The clients that a case has while it comes to a round: those of steps before it."""
    steps = enumerate(progress.instance.case.steps, 1)
    coming_ones = {number for number, _ in coming.questions}
    first = min(coming_ones, default=len(progress.instance.case.steps) + 1)
    return ((number, step) for number, step in steps if isinstance(step, Steady) and number < first)


async def _change(
    testbed: Testbed, changes: Sequence[Change], asked: Sequence[tuple[Progress, int, Steady]]
) -> None:
    """Make changes and wait till they are applied; judge what steady clients met meanwhile."""
    able = [entry for entry in asked if not entry[0].broken]
    clients = [steady.Client(progress.instance, step) for progress, _, step in able]
    async with steady.asking(testbed, clients):
        await testbed.change(changes)
        await testbed.settle()
    for (progress, number, step), client in zip(able, clients, strict=True):
        progress.broken = progress.broken or client.broken
        _judge(progress, number, step, step.expect, client.seen)


async def _ask(testbed: Testbed, progress: Progress, questions: Sequence[tuple[int, Step]]) -> None:
    """Put one case's questions of one round: probes in a row together, all else in order.

    Once the harness could not observe a case, later answers would rest on nothing: it is asked no more.
    """
    started = time.monotonic()
    for batch in _batches(questions):
        if progress.broken:
            break
        begun = time.monotonic()
        asked = [_observe(testbed, progress, step) for _, step in batch]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for (number, step), seen in zip(batch, answers, strict=True):
            _note(testbed, progress, number, step, seen)
            _remember(progress, number, step, seen, begun)
    progress.seconds += time.monotonic() - started


def _batches(questions: Sequence[tuple[int, Step]]) -> Iterator[list[tuple[int, Step]]]:
    batch: list[tuple[int, Step]] = []
    for number, step in questions:
        if isinstance(step, Probe):
            batch.append((number, step))
            continue
        if batch:
            yield batch
        yield [(number, step)]
        batch = []
    if batch:
        yield batch


async def _observe(testbed: Testbed, progress: Progress, step: Step) -> Sequence[Observation]:
    match step:
        case Probe() | Steady():
            probe = steady.question(step)
            count = 1 if testbed.exhaustive else sample_size(probe)
            return await testbed.probe(progress.instance, probe, count)
        case Hold():
            return [await testbed.hold(progress.instance, step)]
        case Use():
            return [await testbed.use(progress.instance, step)]
        case Ping():
            return [await testbed.ping(progress.instance, step)]
        case CheckHealth() | CheckProxy():
            return [await testbed.check_health(progress.instance, step)]
        case ReadSysctl(node=node, name=name):
            value = await testbed.read_sysctl(node, name)
            return [Observation(frozenset(), value)]
        case Reopen():
            return [await testbed.reopen(progress.instance, step)]
        case Wait(seconds=seconds):
            await asyncio.sleep(seconds)
        case Deafen() | OutOfWindow():
            await testbed.act(progress.instance, step)
        case _:
            raise AssertionError(step)
    return []


def _note(
    testbed: Testbed, progress: Progress, number: int, step: Step, seen: Sequence[Observation] | BaseException
) -> None:
    if isinstance(seen, Broken | LabError | OSError):
        progress.broken = progress.broken or steady.unseen(seen, f"step {number}, {describe(step)}")
        return
    if isinstance(seen, BaseException):
        raise seen
    match step:
        case Probe():
            _judge_probe(testbed, progress, number, step, seen)
        case Hold():
            progress.held[step.flow] = seen[0]
            _judge(progress, number, step, step.expect, seen)
        case Use():
            _judge_use(progress, number, step, seen[0])
        case Reopen():
            progress.held[step.flow] = seen[0]
            _judge(progress, number, step, step.expect, seen)
        case Ping() | Steady():
            _judge(progress, number, step, step.expect, seen)
        case CheckHealth() | CheckProxy() | ReadSysctl() if seen[0].text != (lawful := demands(step)):
            _find(progress, number, step, lawful, seen[0].text)
        case _:
            pass


def _remember(
    progress: Progress, number: int, step: Step, seen: Sequence[Observation] | BaseException, begun: float
) -> None:
    texts = f"not observed: {seen}" if isinstance(seen, BaseException) else _gists(seen)
    if not texts:
        return
    progress.observed.append(
        Observed(
            family=progress.instance.family,
            step=number,
            what=describe(step),
            lawful=demands(step),
            seen=texts,
            at=begun - progress.begun,
            seconds=time.monotonic() - begun,
        )
    )


def sample_size(probe: Probe) -> int:
    """How many connections a probe takes, as `kproxy.conformance.chance` has it."""
    ways = len(probe.expect)
    if ways < 2:
        return probe.count
    covering = coverage_sample(ways) if probe.spread else 1
    return max(probe.count, covering, even_sample(ways) if probe.even else 1)


def _judge_probe(
    testbed: Testbed, progress: Progress, number: int, step: Probe, seen: Sequence[Observation]
) -> None:
    _judge(progress, number, step, step.expect, seen)
    if step.spread:
        _judge_spread(progress, number, step, seen)
    if step.even:
        _judge_even(testbed, progress, number, step, seen)
    if step.sticks and not testbed.exhaustive:
        _judge_sticks(progress, number, step, seen)
    if step.redrawn and not testbed.exhaustive and not any(o.redrawn for o in seen):
        _find(progress, number, step, "another source port for some", f"{len(seen)} times the sender's own")
    if step.mark and not testbed.exhaustive and not all(o.kept_mark for o in seen):
        _find(progress, number, step, f"to leave the node with mark {step.mark:#x}", "another mark, or none")
    if step.roams:
        _judge_roams(progress, number, step, seen)


def _judge(
    progress: Progress, number: int, step: Judged, lawful: Lawful, seen: Sequence[Observation]
) -> None:
    outcomes = progress.instance.outcomes(lawful, _target(progress, step))
    strange = [o for o in seen if not o.outcomes & outcomes]
    if strange:
        texts = _counted(o.text for o in strange)
        _find(progress, number, step, describe_lawful(lawful), texts)


def _target(progress: Progress, step: Judged) -> Target:
    if isinstance(step, Use | Reopen):
        holds = (s for s in progress.instance.case.steps if isinstance(s, Hold) and s.flow == step.flow)
        return next(holds).to
    return step.to


def _judge_spread(progress: Progress, number: int, step: Probe, seen: Sequence[Observation]) -> None:
    missing = _wanted(progress, step) - _endpoints(seen)
    if missing:
        text = f"{len(seen)} tries never reached {_names(missing)}"
        _find(progress, number, step, f"every one of {describe_lawful(step.expect)}", text)


def _wanted(progress: Progress, step: Probe) -> set[Endpoint]:
    lawful = progress.instance.outcomes(step.expect, step.to)
    return {(o.address, o.port) for o in lawful if isinstance(o, Delivered)}


def _judge_even(
    testbed: Testbed, progress: Progress, number: int, step: Probe, seen: Sequence[Observation]
) -> None:
    """Where chances are known they must be equal; else counts must be such as equal chances give."""
    wanted = sorted(_wanted(progress, step), key=str)
    lawful = f"each of {len(wanted)} endpoints as often as the others"
    if testbed.exhaustive:
        chances = {one: sum(o.chance for o in seen if o.endpoint == one) for one in wanted}
        if len(set(chances.values())) > 1:
            _find(progress, number, step, lawful, _shares(chances))
        return
    met = Counter(o.endpoint for o in seen)
    counts = {one: met[one] for one in wanted}
    if any(counts.values()) and (luck := tail(chi_square(counts.values()), len(wanted) - 1)) < FALSE_ALARM:
        text = f"{_shares(counts)} of {len(seen)}; chance does so once in {1 / luck:.0e} times"
        _find(progress, number, step, lawful, text)


def _judge_sticks(progress: Progress, number: int, step: Probe, seen: Sequence[Observation]) -> None:
    met = progress.stuck.setdefault((step.sender, step.sticks), set())
    met |= _endpoints(seen)
    if len(met) > 1:
        _find(progress, number, step, "one endpoint for all", f"{len(met)} endpoints: {_names(met)}")


def _judge_roams(progress: Progress, number: int, step: Probe, seen: Sequence[Observation]) -> None:
    """The last probe of the name answers for all of them: not every client may have met one endpoint only."""
    met = progress.roamed.setdefault(step.roams, {})
    met.setdefault((step.sender, step.to), set()).update(_endpoints(seen))
    steps = enumerate(progress.instance.case.steps, 1)
    last = max(n for n, other in steps if isinstance(other, Probe) and other.roams == step.roams)
    if number == last and all(len(endpoints) == 1 for endpoints in met.values()):
        same = "; ".join(f"{sender} always {_names(ends)}" for (sender, _), ends in met.items())
        _find(progress, number, step, "another endpoint over time for some client", same)


def _judge_use(progress: Progress, number: int, step: Use, seen: Observation) -> None:
    if not isinstance(step.expect, Still):
        _judge(progress, number, step, step.expect, [seen])
        return
    before = progress.held[step.flow]
    if seen.endpoint is None or seen.endpoint != before.endpoint:
        _find(progress, number, step, f"still {before.text}", seen.text)


def _find(progress: Progress, number: int, step: Judged | Compared, lawful: str, seen: str) -> None:
    own = () if isinstance(step, Hold) else step.clauses
    cited = tuple(sorted(own or progress.instance.case.clauses))
    progress.findings.append(Finding(progress.instance, number, describe(step), lawful, seen, cited))


def _endpoints(seen: Sequence[Observation]) -> set[Endpoint]:
    return {o.endpoint for o in seen if o.endpoint is not None}


def _names(endpoints: Iterable[Endpoint]) -> str:
    return ", ".join(sorted(str(Socket(address, port)) for address, port in endpoints))


def _shares(shares: Mapping[Endpoint, object]) -> str:
    return ", ".join(f"{Socket(address, port)} {share}" for (address, port), share in shares.items())


def _gists(seen: Sequence[Observation]) -> str:
    """What was met and how often, in an order that does not depend on when."""
    return _most(sorted(Counter(o.gist or o.text for o in seen).items()))


def _counted(texts: Iterator[str]) -> str:
    return _most(list(Counter(texts).items()))


def _most(counts: Sequence[tuple[str, int]]) -> str:
    shown = [f"{n} x {text}" if n > 1 else text for text, n in counts]
    more = [f"and {len(shown) - MOST_SHOWN} more"] if len(shown) > MOST_SHOWN else []
    return "; ".join([*shown[:MOST_SHOWN], *more])
