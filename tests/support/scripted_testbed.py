"""Testbed with scripted observations, and small cases."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

from kproxy.conformance.binding.bind import Instance, bind_cases
from kproxy.conformance.binding.world import Change
from kproxy.conformance.case import (
    Case,
    CheckHealth,
    CheckProxy,
    CheckTraces,
    Feature,
    HealthRequest,
    Open,
    OutOfWindow,
    Ping,
    Probe,
    Profile,
    ReadSysctl,
    Reopen,
    Send,
    Step,
    UnjudgedAction,
    UnrelatedEntries,
    case,
    delivered_to,
    pod,
    service,
)
from kproxy.conformance.case.descriptions import SAME_ENTRIES
from kproxy.conformance.engine.convergence import LatencySample
from kproxy.conformance.engine.judging import Finding, InstanceProgress
from kproxy.conformance.engine.runner import run_instances
from kproxy.conformance.engine.session import OpenTestbed, Session, run_session
from kproxy.conformance.reports.results import Report
from kproxy.conformance.subjects.subject import Subject
from kproxy.conformance.testbed import HarnessError, Observation, Testbed
from kproxy.model.network import Family
from kproxy.spec.outcome import Delivered, Failure, Outcome, SourceIP

WEB = service("web", "a1", "b1")
TO_WEB = Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1", "b1"))
ELSEWHERE = Delivered(ip_address("192.0.2.1"), 9, SourceIP.PRESERVED)

Question = Probe | Ping | Open | Send | Reopen

Answer = Callable[[Instance, Question, int], Observation]
"""Observation of the ``int``-th of several connections of a step."""


def small_case(
    *steps: Step, id: str = "group.name", clauses: set[str] | None = None, **fields: object
) -> Case:
    """A case that runs over IPv4 only."""
    return case(
        id, "It is small.", *steps, clauses=clauses or {"clause.one"}, families=(Family.IPV4,), **fields
    )


def met(outcome: Outcome) -> Observation:
    endpoint = (outcome.address, outcome.port) if isinstance(outcome, Delivered) else None
    return Observation(frozenset({outcome}), str(outcome), endpoint)


def lawful_outcomes(instance: Instance, step: Question) -> list[Outcome]:
    """Outcomes that the step allows, in a fixed order; of a flow, those of its opening."""
    if isinstance(step, Send | Reopen):
        step = next(s for s in instance.case.steps if isinstance(s, Open) and s.flow == step.flow)
    return sorted(instance.outcomes(step.expect, step.to), key=str)


def fairly(instance: Instance, step: Question, number: int) -> Observation:
    """Every lawful outcome in turn; a flow keeps its endpoint."""
    outcomes = lawful_outcomes(instance, step)
    return met(outcomes[number % len(outcomes)])


def always(outcome: Outcome) -> Answer:
    return lambda _instance, _step, _number: met(outcome)


class Scripted:
    """Scripted testbed; records its calls in ``log``."""

    name = "scripted"

    def __init__(
        self, answer: Answer = fairly, *, exhaustive: bool = False, lacking: dict[str, str] | None = None
    ) -> None:
        self.exhaustive, self.has_long_rounds = exhaustive, False
        self.answer, self.lacking = answer, lacking or {}
        self.log: list[str] = []
        self.entries: list[str] = []
        self.counts: list[int] = []
        self.applied: Sequence[LatencySample] = ()

    def not_runnable_reason(self, case: Case) -> str | None:
        return self.lacking.get(case.id)

    async def change(self, changes: Sequence[Change]) -> None:
        self.log.append(f"change {len(changes)}")

    async def settle(self) -> None:
        self.log.append("settle")

    def convergence(self) -> Sequence[LatencySample]:
        return self.applied

    async def probe(self, instance: Instance, probe: Probe, count: int) -> Sequence[Observation]:
        self.log.append("probe")
        self.counts.append(count)
        await asyncio.sleep(0)
        return [self.answer(instance, probe, number) for number in range(count)]

    async def open_flow(self, instance: Instance, step: Open) -> Observation:
        self.log.append("hold")
        return self.answer(instance, step, 0)

    async def send_on_flow(self, instance: Instance, step: Send) -> Observation:
        self.log.append("use")
        return self.answer(instance, step, 0)

    async def reopen(self, instance: Instance, reopen: Reopen) -> Observation:
        self.log.append("reopen")
        return self.answer(instance, reopen, 0)

    async def check_health(self, instance: Instance, step: HealthRequest) -> Observation:
        whose = step.node if isinstance(step, CheckProxy) else instance.destination(step.to)[0]
        self.log.append(f"check health of {whose}")
        return Observation(frozenset(), "refused")

    async def ping(self, instance: Instance, ping: Ping) -> Observation:
        self.log.append("ping")
        return self.answer(instance, ping, 0)

    async def read_node(self, step: ReadSysctl | CheckTraces) -> str:
        self.log.append("sysctl")
        return str(step)

    async def watch_entries(self, _: Instance, __: UnrelatedEntries) -> Observation:
        self.log.append("entries")
        text = self.entries.pop(0) if self.entries else SAME_ENTRIES
        return Observation(frozenset(), text)

    async def act(self, _: Instance, act: UnjudgedAction) -> None:
        self.log.append("out of window" if isinstance(act, OutOfWindow) else type(act).__name__.lower())

    async def reprobe(self, instance: Instance, step: Question | CheckHealth) -> None:
        self.log.append(f"again {instance.name} {type(step).__name__.lower()}")

    async def evidence(self, instance: Instance, folder: Path) -> None:
        folder.joinpath("evidence.txt").write_text(instance.name, encoding="utf-8")


def run_all(testbed: Scripted, *cases: Case) -> list[InstanceProgress]:
    return asyncio.run(run_instances(testbed, bind_cases(cases)))


def findings(testbed: Scripted, *steps: Step) -> list[Finding]:
    """Findings of a run of one case with these steps; asserts that there was no harness error."""
    progress = run_all(testbed, small_case(*steps))
    assert [entry.harness_error for entry in progress] == [""]
    return progress[0].findings


def opener(
    testbed: Scripted, *, broken: dict[str, str] | None = None, opened: list[str] | None = None
) -> OpenTestbed:
    """Opens this testbed for every profile; profiles in ``broken`` cannot be opened."""

    @asynccontextmanager
    async def open_scripted(profile: Profile, _: Sequence[Instance]) -> AsyncIterator[Testbed]:
        if opened is not None:
            opened.append(profile.name)
        if broken and profile.name in broken:
            raise HarnessError(broken[profile.name])
        yield testbed

    return open_scripted


def subject(**fields: object) -> Subject:
    given: dict[str, object] = {
        "name": "scripted",
        "modes": ("one",),
        "command": ("run",),
        "cleanup_command": ("remove",),
        **fields,
    }
    return Subject(**given)  # type: ignore[arg-type]


def report_on(
    cases: Sequence[Case],
    open_testbed: OpenTestbed,
    evidence: Path,
    who: Subject | None = None,
    *,
    maxfail: int = 0,
) -> Report:
    who = who or subject()
    session = Session(
        subject=who,
        mode=who.modes[0],
        cases=cases,
        evidence=evidence,
        environment={"kernel": "6"},
        maxfail=maxfail,
    )
    return asyncio.run(run_session(session, open_testbed, lambda _: None))


__all__ = [
    "ELSEWHERE",
    "TO_WEB",
    "WEB",
    "Failure",
    "Feature",
    "Scripted",
    "always",
    "fairly",
    "findings",
    "lawful_outcomes",
    "met",
    "opener",
    "report_on",
    "run_all",
    "small_case",
    "subject",
]


def breaking_for(wanted: str) -> Answer:
    """As `fairly`, but nothing of this case can be observed."""

    def answer(instance: Instance, step: Question, number: int) -> Observation:
        if instance.case.id == wanted:
            raise HarnessError("the capture is full")
        return fairly(instance, step, number)

    return answer
