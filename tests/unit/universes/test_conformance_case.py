"""Schedules as conformance cases: rounds, checks with the oracle's verdicts, faults that are steps, and those that are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kproxy.conformance.case import (
    DROPPED,
    REJECTED,
    SAME_ENDPOINT,
    AllowWrites,
    Apply,
    Case,
    CheckHealth,
    CheckProxy,
    ContinuousProbe,
    DelayWrites,
    Delete,
    DuringWatchFault,
    FailWrites,
    Open,
    Policy,
    Port,
    Probe,
    Restart,
    Send,
    SetTaints,
    Type,
    WatchFault,
    delivered_to,
    host,
    pod,
    service,
)
from kproxy.conformance.generate.case_files import parse_case_file
from kproxy.conformance.generate.case_source import case_source
from kproxy.model.network import Family, Protocol
from kproxy.spec.health import LEAVING_TAINT
from kproxy.spec.outcome import SourceIP
from kproxy.universes.conformance_case import InexpressibleSchedule, case_of_schedule
from kproxy.universes.judge import Sent, Violation
from kproxy.universes.recording import SECOND, FlowExchanged, Recording
from kproxy.universes.schedule import (
    FaultKind,
    Resource,
    Schedule,
    TimedChange,
    TimedCheck,
    TimedFault,
    TimedFlow,
    TimedProbe,
)

WEB = service("web", "a1", "b1")
LOCAL = WEB.replace(internal_policy=Policy.LOCAL)
ONLY_B = service("web", "b1")
SENT = TimedProbe(at=30.0, sender=pod("a1"), to=WEB.cluster_ip)
BOTH = delivered_to("a1", source=SourceIP.PRESERVED) | delivered_to("b1")


def schedule(*changes: TimedChange, sent: Sent = SENT, faults: tuple[TimedFault, ...] = ()) -> Schedule:
    return Schedule(
        seed=7,
        family=Family.IPV4,
        changes=changes,
        faults=faults,
        probes=(sent,) if isinstance(sent, TimedProbe) else (),
        flows=(sent,) if isinstance(sent, TimedFlow) else (),
        checks=(sent,) if isinstance(sent, TimedCheck) else (),
    )


def made(found: Schedule, sent: Sent = SENT, *, at: float = 30.0, opened: float | None = None) -> Case:
    """The case of a violation, as it comes back from its file."""
    violation = Violation(
        at=at,
        since=at - 5,
        sent=sent,
        established=opened is not None,
        lawful=(),
        seen="dropped",
        clauses=("cluster-ip.reaches-ready-endpoint",),  # type: ignore[arg-type]
    )
    times = () if opened is None else (opened, at)
    lines = (
        FlowExchanged(at=int(t * SECOND), until=int(t * SECOND), number=0, opened=t == opened) for t in times
    )
    case = case_of_schedule(found, Recording(tuple(lines)), violation)
    assert parse_case_file(case_source(case, "A universe."), "case.py") == case
    return case


def apply(at: float, *services: object, lag: float = 0.0) -> TimedChange:
    return TimedChange(at=at, step=Apply(*services), lag=lag)  # type: ignore[arg-type]


def fault(kind: FaultKind, node: str = "", **fields: object) -> TimedFault:
    return TimedFault(at=9.0, seconds=10.0, kind=kind, node=node, **fields)  # type: ignore[arg-type]


def test_changes_that_come_alone_are_rounds_and_each_is_probed() -> None:
    case = made(
        schedule(
            apply(0.0, WEB), apply(10.0, LOCAL), apply(10.05, ONLY_B.replace(internal_policy=Policy.LOCAL))
        )
    )
    first, control, second, third, last = case.steps
    assert [first, second] == [Apply(WEB), Apply(LOCAL)]
    assert third == Apply(ONLY_B.replace(internal_policy=Policy.LOCAL)), (
        "in one round with the change just before it"
    )
    assert isinstance(control, Probe)
    assert isinstance(last, Probe)
    assert control.expect >= delivered_to("b1")
    assert last.expect == DROPPED
    assert {"internal-policy.local.drop-without-local-endpoint"} <= case.clauses
    assert (case.families, case.profile.isolated) == ((Family.IPV4,), False)


def test_a_packet_while_a_change_takes_effect_is_sent_without_a_pause_too() -> None:
    case = made(schedule(apply(0.0, WEB), apply(29.9, ONLY_B)))
    continuous = next(step for step in case.steps if isinstance(step, ContinuousProbe))
    assert case.steps.index(continuous) < case.steps.index(Apply(ONLY_B))
    assert {one.on for one in continuous.expect} == {"a1", "b1"}  # type: ignore[union-attr]
    quiet = made(schedule(apply(0.0, WEB), apply(10.0, ONLY_B)))
    assert not any(isinstance(step, ContinuousProbe) for step in quiet.steps)


def test_what_comes_after_the_packet_is_left_out() -> None:
    case = made(schedule(apply(0.0, WEB), TimedChange(at=31.0, step=Delete(WEB))))
    assert Delete(WEB) not in case.steps
    case = made(schedule(apply(0.0, WEB), TimedChange(at=11.0, step=Delete(WEB))))
    assert case.steps[2] == Delete(WEB), "positive control"


DNS = service("dns", "a1", ports=(Port(protocol=Protocol.UDP),))
MOVED = service("dns", "b1", ports=(Port(protocol=Protocol.UDP),))
FLOW = TimedFlow(at=6.0, sender=pod("b2"), to=DNS.cluster_ip, pause=1.0)
CONNECTION = TimedFlow(at=6.0, sender=pod("b2"), to=WEB.cluster_ip, pause=1.0)


def test_a_flow_of_datagrams_leaves_an_endpoint_that_is_gone() -> None:
    case = made(schedule(apply(0.0, DNS), apply(10.0, MOVED), sent=FLOW), FLOW, opened=6.0)
    opened, sent = (step for step in case.steps if isinstance(step, Open | Send))
    assert isinstance(opened, Open)
    assert isinstance(sent, Send)
    assert opened.expect == delivered_to("a1")
    assert sent.expect == delivered_to("b1")
    assert "conntrack.udp.moves-off-removed-endpoint" in sent.clauses


def test_a_connection_stays_and_is_opened_where_the_universe_opened_it() -> None:
    changes = (apply(0.0, WEB), apply(10.0, LOCAL), apply(20.0, ONLY_B))
    case = made(schedule(*changes, sent=CONNECTION), CONNECTION, opened=12.0)
    assert [type(step) for step in case.steps] == [Apply, Apply, Open, Apply, Send]
    assert case.steps[-1].expect is SAME_ENDPOINT  # type: ignore[union-attr]
    early = made(schedule(*changes, sent=CONNECTION), CONNECTION, opened=6.0)
    assert [type(step) for step in early.steps] == [Apply, Open, Apply, Send, Apply, Send]


def test_a_flow_that_began_before_its_service_was_in_effect_is_no_case() -> None:
    with pytest.raises(InexpressibleSchedule, match="began before a change was in effect"):
        made(schedule(apply(0.0, service("web")), sent=CONNECTION), CONNECTION, opened=6.0)


def test_health_ports_have_the_status_that_is_true() -> None:
    tainted = TimedChange(at=10.0, step=SetTaints("a", (LEAVING_TAINT,)))
    check = TimedCheck(at=30.0, sender=host("a"), node="a")
    case = made(schedule(apply(0.0, WEB), tainted, sent=check), check)
    assert [step.expect for step in case.steps if isinstance(step, CheckProxy)] == [200, 503]
    assert case.profile.isolated, "the Node is everybody's"
    balanced = WEB.replace(type=Type.LOAD_BALANCER, external_policy=Policy.LOCAL)
    check = replace(check, to=balanced.health_check("a"))
    elsewhere = ONLY_B.replace(type=Type.LOAD_BALANCER, external_policy=Policy.LOCAL)
    case = made(schedule(apply(0.0, balanced), apply(9.0, elsewhere), apply(20.0, WEB), sent=check), check)
    assert [step.expect for step in case.steps if isinstance(step, CheckHealth)] == [1, 0, None]


@pytest.mark.parametrize(
    ("kind", "same"),
    [
        (FaultKind.WATCHES_RESET, WatchFault.CONNECTION_RESET),
        (FaultKind.WATCHES_STALL, WatchFault.DELAYED),
        (FaultKind.HISTORY_GONE, WatchFault.GONE),
    ],
)
def test_faults_of_watches_are_steps(kind: FaultKind, same: WatchFault) -> None:
    case = made(schedule(apply(0.0, WEB), apply(10.0, ONLY_B), faults=(fault(kind),)))
    assert case.steps[2] == DuringWatchFault(same, Apply(ONLY_B))
    assert case.profile.name == "watches"


def test_a_killed_proxy_is_a_restart() -> None:
    killed = (fault(FaultKind.PROXY_KILLED, "a"),)
    case = made(schedule(apply(0.0, WEB), apply(10.0, LOCAL), apply(11.0, ONLY_B), faults=killed))
    assert case.steps[2] == Restart("a", while_down=Apply(ONLY_B)), "the last form of each Service"
    assert made(schedule(apply(0.0, WEB), faults=killed)).steps[2] == Restart("a")


def test_refused_writes_are_a_round_of_their_own_and_rules_stay() -> None:
    refused = (fault(FaultKind.WRITES_REFUSED, "a", pause=0.1),)
    case = made(schedule(apply(0.0, WEB), apply(10.0, service("web")), faults=refused))
    assert [step for step in case.steps if not isinstance(step, Probe)] == [
        Apply(WEB),
        FailWrites("a"),
        Apply(service("web")),
        AllowWrites("a"),
    ]
    probes = [step.expect for step in case.steps if isinstance(step, Probe)]
    assert probes[0] == probes[1] == probes[2]
    assert probes[3] == REJECTED
    assert case.profile.name == "writes"


def test_slow_writes_are_a_round_of_their_own_and_changes_take_effect() -> None:
    slow = (fault(FaultKind.WRITES_SLOW, "a", pause=0.4),)
    case = made(schedule(apply(0.0, WEB), apply(10.0, service("web")), faults=slow))
    assert [step for step in case.steps if not isinstance(step, Probe)] == [
        Apply(WEB),
        DelayWrites("a"),
        Apply(service("web")),
        AllowWrites("a"),
    ]
    probes = [step.expect for step in case.steps if isinstance(step, Probe)]
    assert probes[0] == probes[1] != REJECTED
    assert probes[2] == probes[3] == REJECTED
    assert case.profile.name == "writes"


@pytest.mark.parametrize(
    ("faults", "changes", "reason"),
    [
        ((fault(FaultKind.PROXY_STOPPED, "a"),), (), "node a: the proxy is stopped"),
        ((fault(FaultKind.WATCHES_RESET, resource=Resource.NODES),), (), "Node only"),
        (
            (fault(FaultKind.PROXY_KILLED, "a"),),
            (TimedChange(at=10.0, step=Delete(WEB)), apply(11.0, ONLY_B)),
            "one change while a proxy is down",
        ),
        (
            (fault(FaultKind.WATCHES_STALL),),
            (TimedChange(at=10.0, step=SetTaints("a", ("x",))),),
            "changes nodes or ServiceCIDRs",
        ),
        (
            (fault(FaultKind.PROXY_KILLED, "a"), fault(FaultKind.PROXY_KILLED, "b")),
            (),
            "faults of a case do not overlap",
        ),
    ],
)
def test_what_no_case_can_do_is_named(
    faults: tuple[TimedFault, ...], changes: tuple[TimedChange, ...], reason: str
) -> None:
    with pytest.raises(InexpressibleSchedule, match=reason):
        made(schedule(apply(0.0, WEB), *changes, faults=faults))
    later = tuple(replace(one, at=31.0) for one in faults)
    assert made(schedule(apply(0.0, WEB), *changes, faults=later)).steps, "positive control: after the packet"
