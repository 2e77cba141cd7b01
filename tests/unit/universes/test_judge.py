"""Verdicts on recordings."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import (
    Apply,
    Delete,
    Policy,
    Port,
    SetTaints,
    Target,
    Type,
    Vip,
    client,
    host,
    pod,
    pods,
    service,
)
from kproxy.conformance.subjects.deviations import Deviation, UniverseExcuse
from kproxy.conformance.subjects.subject import InvalidSubject, load_subject
from kproxy.lab.topology import LAB
from kproxy.model.network import Family, Protocol
from kproxy.spec.health import LEAVING_TAINT
from kproxy.spec.outcome import Delivered, Failure, Outcome, SourceIP
from kproxy.universes.command import excuses
from kproxy.universes.judge import Verdict, judge_universe
from kproxy.universes.recording import (
    SECOND,
    Changed,
    Failed,
    FlowExchanged,
    HealthChecked,
    Line,
    LogEnded,
    Probed,
    Recording,
    encode_line,
    outcome_from_text,
    outcomes_text,
    parse_recording,
)
from kproxy.universes.schedule import (
    FaultKind,
    Schedule,
    TimedChange,
    TimedCheck,
    TimedFault,
    TimedFlow,
    TimedProbe,
)
from kproxy.universes.story import story_lines

WEB = service("web", "a1")
MOVED = WEB.replace(endpoints=pods("b1"))
SCHEDULE = Schedule(
    seed=1,
    family=Family.IPV4,
    changes=(TimedChange(at=0.0, step=Apply(WEB)), TimedChange(at=20.0, step=Apply(MOVED))),
    probes=tuple(TimedProbe(at=at, sender=pod("a2"), to=WEB.cluster_ip) for at in (19.0, 21.0, 26.0)),
)


def reached(name: str) -> Delivered:
    instance = Instance(SCHEDULE.case, Family.IPV4, 0, 0)
    port = instance.target_port(WEB, WEB.ports[0])
    return Delivered(LAB.pod_address[name][Family.IPV4], port, SourceIP.PRESERVED)


def verdict(*outcomes: Outcome, failure: tuple[Line, ...] = (), schedule: Schedule = SCHEDULE) -> Verdict:
    lines: list[Line] = [Changed(at=0, number=0), Changed(at=20 * SECOND, number=1)]
    for number, (probe, outcome) in enumerate(zip(schedule.probes, outcomes, strict=False)):
        at = int(probe.at * SECOND)
        lines.append(Probed(at=at, until=at, number=number, outcomes=outcomes_text([outcome]), text="it"))
    return judge_universe(schedule, Recording((*lines, *failure)))


def test_what_some_state_of_the_window_allows_is_lawful() -> None:
    for between in ("a1", "b1"):
        found = verdict(reached("a1"), reached(between), reached("b1"))
        assert (found.judged, found.violations, found.unjudged) == (3, (), {})


@pytest.mark.parametrize(
    ("outcomes", "number"),
    [
        ((reached("b1"), reached("b1"), reached("b1")), 0),
        ((reached("a1"), Failure.REJECTED, reached("b1")), 1),
        ((reached("a1"), reached("a1"), reached("a1")), 2),
        ((reached("a1"), reached("a1"), Failure.DROPPED), 2),
    ],
)
def test_the_future_a_third_answer_and_the_past_are_not(outcomes: tuple[Outcome, ...], number: int) -> None:
    found = verdict(*outcomes)
    assert [one.sent for one in found.violations] == [SCHEDULE.probes[number]]
    assert "cluster-ip.reaches-ready-endpoint" in found.violations[0].clauses
    lines = list(story_lines(SCHEDULE, Recording((Changed(at=20 * SECOND, number=1),)), found))
    assert any("lawful:" in line for line in lines)


@pytest.mark.parametrize(
    ("second", "bad"),
    [("a1", False), ("b1", True), ("", True)],
    ids=["it stays", "it moves", "it is reset"],
)
def test_a_connection_stays_with_its_endpoint(second: str, bad: bool) -> None:  # noqa: FBT001
    schedule = replace(
        SCHEDULE, probes=(), flows=(TimedFlow(at=6.0, sender=pod("a2"), to=WEB.cluster_ip, pause=1.0),)
    )
    outcomes = reached("a1"), reached(second) if second else Failure.RESET
    lines = [
        FlowExchanged(
            at=at * SECOND, until=at * SECOND, number=0, opened=at == 6, outcomes=outcomes_text([outcome])
        )
        for at, outcome in zip((6, 30), outcomes, strict=True)
    ]
    found = judge_universe(schedule, Recording(tuple(lines)))
    assert (found.judged, bool(found.violations)) == (2, bad)
    assert all(one.established for one in found.violations)
    excused = judge_universe(schedule, Recording(tuple(lines)), lambda _: "known")
    assert (excused.violations, excused.known) == ((), {"known": 1} if bad else {})


@pytest.mark.parametrize(
    ("at", "node", "excused"),
    [(18.0, "a", True), (18.0, "b", False), (10.0, "a", False), (20.0, "a", False)],
    ids=["it lasts", "it is another node's", "it is over", "it is to come"],
)
def test_a_deviation_may_excuse_what_is_seen_during_a_fault(at: float, node: str, excused: bool) -> None:  # noqa: FBT001
    fault = TimedFault(at=at, seconds=2.0, kind=FaultKind.PROXY_STOPPED, node=node)
    (violation,) = verdict(Failure.DROPPED, schedule=replace(SCHEDULE, faults=(fault,))).violations
    universe = UniverseExcuse(
        clauses=("cluster-ip.reaches-ready-endpoint",), seen="*", during=("PROXY_STOPPED",)
    )
    deviation = Deviation(link="https://example.com", text="known", universes=(universe,))
    assert (
        bool(excuses(replace(load_subject("kproxy"), deviations=(deviation,)), "iptables")(violation))
        is excused
    )


@pytest.mark.parametrize(
    ("seen", "excused"),
    [("a1", True), ("b1", False), ("", False)],
    ids=["a lawful endpoint", "another endpoint", "none"],
)
def test_a_deviation_may_excuse_the_source_alone(seen: str, excused: bool) -> None:  # noqa: FBT001
    outcome = replace(reached(seen), source=SourceIP.MASQUERADED) if seen else Failure.DROPPED
    (violation,) = verdict(outcome).violations
    universe = UniverseExcuse(
        clauses=("masquerade.cluster-ip.pod-source-preserved",), seen="*", source_only=True
    )
    deviation = Deviation(link="https://example.com", text="known", universes=(universe,))
    excuse = excuses(replace(load_subject("kproxy"), deviations=(deviation,)), "iptables")
    assert (violation.source_only, bool(excuse(violation))) == (excused, excused)


@pytest.mark.parametrize(
    ("at", "stopped", "changing"),
    [(20.05, "", True), (20.5, "", False), (20.5, "a", True), (20.5, "b", False), (19.9, "", False)],
    ids=["just changed", "changed before", "a sync is late", "another node's sync is late", "changes next"],
)
def test_a_deviation_may_excuse_what_meets_rules_that_change(at: float, stopped: str, changing: bool) -> None:  # noqa: FBT001
    fault = TimedFault(at=19.0, seconds=2.0, kind=FaultKind.PROXY_STOPPED, node=stopped)
    probe = TimedProbe(at=at, sender=pod("a2"), to=WEB.cluster_ip)
    schedule = replace(SCHEDULE, probes=(probe,), faults=(fault,) if stopped else ())
    (violation,) = verdict(Failure.DROPPED, schedule=schedule).violations
    universe = UniverseExcuse(clauses=("cluster-ip.reaches-ready-endpoint",), seen="*", changing=True)
    deviation = Deviation(link="https://example.com", text="known", universes=(universe,))
    excuse = excuses(replace(load_subject("kproxy"), deviations=(deviation,)), "iptables")
    assert (violation.changing, bool(excuse(violation))) == (changing, changing)


def test_a_fault_that_does_not_exist_excuses_nothing() -> None:
    universe = UniverseExcuse(clauses=("a",), seen="*", during=("PROXY_GONE",))
    deviation = Deviation(link="https://example.com", text="known", universes=(universe,))
    with pytest.raises(InvalidSubject, match=r"no fault 'PROXY_GONE'.*PROXY_KILLED"):
        excuses(replace(load_subject("kproxy"), deviations=(deviation,)), "iptables")


@pytest.mark.parametrize(
    ("kind", "node", "over"), [(FaultKind.RULES_LOST, "a", 51.5), (FaultKind.CONNTRACK_FULL, "", 16.5)]
)
@pytest.mark.parametrize("established", [False, True])
def test_what_an_intruder_takes_from_new_connections_is_not_judged_while_it_may_last(
    kind: FaultKind,
    node: str,
    over: float,
    established: bool,  # noqa: FBT001
) -> None:
    """An established connection is judged always; a new one before the fault, and when all must be there again."""
    flow = TimedFlow(at=6.0, sender=pod("a2"), to=WEB.cluster_ip, pause=1.0)
    probes = tuple(TimedProbe(at=at, sender=pod("a2"), to=WEB.cluster_ip) for at in (9.5, 11.0, over))
    fault = TimedFault(at=10.0, seconds=1.0, kind=kind, node=node)
    schedule = Schedule(
        seed=1,
        family=Family.IPV4,
        changes=SCHEDULE.changes[:1],
        faults=(fault,),
        probes=probes,
        flows=(flow,),
    )
    lines: list[Line] = [
        FlowExchanged(
            at=6 * SECOND, until=6 * SECOND, number=0, opened=True, outcomes=outcomes_text([reached("a1")])
        )
    ]
    silent = outcomes_text([Failure.DROPPED])
    for number, probe in enumerate(probes):
        at = int(probe.at * SECOND)
        if not established:
            lines.append(Probed(at=at, until=at, number=number, outcomes=silent, text="it"))
        elif number == 1:
            lines.append(FlowExchanged(at=at, until=at, number=0, opened=False, outcomes=silent))
    found = judge_universe(schedule, Recording(tuple(lines)))
    assert [one.at for one in found.violations] == ([11.0] if established else [9.5, over])
    assert sum(found.unjudged.values()) == (0 if established else 1)


@pytest.mark.parametrize("node", ["a", "b"])
@pytest.mark.parametrize(
    ("flow_at", "unlawful"),
    [(6, [9.5, 16.5]), (17, [9.5, 16.5, 20.0])],
    ids=["opened before", "opened after"],
)
def test_what_a_link_that_is_down_may_take_is_not_judged(
    node: str, flow_at: int, unlawful: list[float]
) -> None:
    """Whichever node's: an endpoint may be behind it.  A flow that was there before may have ended with it."""
    flow = TimedFlow(at=float(flow_at), sender=pod("a2"), to=WEB.cluster_ip, pause=1.0)
    probes = tuple(TimedProbe(at=at, sender=pod("a2"), to=WEB.cluster_ip) for at in (9.5, 11.5, 16.5))
    fault = TimedFault(at=10.0, seconds=1.0, kind=FaultKind.LINK_DOWN, node=node)
    schedule = Schedule(
        seed=1,
        family=Family.IPV4,
        changes=SCHEDULE.changes[:1],
        faults=(fault,),
        probes=probes,
        flows=(flow,),
    )
    silent, answered = outcomes_text([Failure.DROPPED]), outcomes_text([reached("a1")])
    lines: list[Line] = [
        Probed(at=int(one.at * SECOND), until=int(one.at * SECOND), number=number, outcomes=silent, text="it")
        for number, one in enumerate(probes)
    ]
    lines += [
        FlowExchanged(
            at=at * SECOND, until=at * SECOND, number=0, opened=at == flow_at, outcomes=outcomes, text="it"
        )
        for at, outcomes in ((flow_at, answered), (20, silent))
    ]
    found = judge_universe(schedule, Recording(tuple(lines)))
    assert [one.at for one in found.violations] == unlawful
    assert found.unjudged["a link was down"] == 4 - len(unlawful)


UDP = service("web", "a1", type=Type.NODE_PORT, ports=(Port(protocol=Protocol.UDP),))


@pytest.mark.parametrize(
    ("deleted", "to", "bad"),
    [
        ((12.0,), UDP.node_port("a"), False),
        ((30.0,), UDP.node_port("a"), True),
        ((12.0,), UDP.cluster_ip, True),
        ((12.0, 40.001), UDP.node_port("a"), False),
        ((12.0, 50.0), UDP.node_port("a"), True),
    ],
    ids=[
        "a node port, unseen",
        "a node port, seen",
        "a cluster IP, unseen",
        "unseen, and back for a moment",
        "unseen, and back until it was seen",
    ],
)
def test_a_frontend_that_went_while_no_proxy_ran_is_not_judged(
    deleted: tuple[float, ...],
    to: Target,
    bad: bool,  # noqa: FBT001
) -> None:
    """Though the Service was also changed while none ran: what counts is when its frontend went."""
    edits = (
        TimedChange(at=0.0, step=Apply(UDP)),
        TimedChange(at=11.0, step=Apply(UDP.replace(affinity_seconds=9))),
        TimedChange(at=deleted[0], step=Delete(service=UDP)),
    )
    again = TimedChange(at=40.0, step=Apply(UDP))
    back = (
        [again, *(TimedChange(at=at, step=Delete(service=UDP)) for at in deleted[1:])] if deleted[1:] else []
    )
    schedule = replace(
        SCHEDULE,
        changes=(*edits, *back),
        faults=(TimedFault(at=10.0, seconds=5.0, kind=FaultKind.PROXY_KILLED, node="a"),),
        probes=(),
        flows=(TimedFlow(at=6.0, sender=client("a"), to=to, pause=1.0),),
    )
    instance = Instance(schedule.case, Family.IPV4, 0, 0)
    at_endpoint = LAB.pod_address["a1"][Family.IPV4], instance.target_port(UDP, UDP.ports[0])
    outcomes = outcomes_text([Delivered(*at_endpoint, SourceIP.MASQUERADED)])
    lines = [
        FlowExchanged(at=at * SECOND, until=at * SECOND, number=0, opened=at == 6, outcomes=outcomes)
        for at in (6, 60)
    ]
    found = judge_universe(schedule, Recording(tuple(lines)))
    assert bool(found.violations) is bad
    assert found.unjudged == ({} if bad else {"its frontend went while no proxy could see it": 1})


@pytest.mark.parametrize(
    ("first", "lost_at", "bad"),
    [
        (Failure.UNTOUCHED, 31, False),
        (Failure.UNTOUCHED, 36, True),
        (Failure.REJECTED, 31, True),
    ],
    ids=["an entry of before may be there", "it must be gone", "there is none"],
)
def test_an_entry_made_without_a_service_may_cost_an_answer_until_it_must_be_gone(
    first: Failure,
    lost_at: int,
    bad: bool,  # noqa: FBT001
) -> None:
    """The Service is there without an endpoint for long enough; then an endpoint comes."""
    idle = UDP.replace(endpoints=())
    changes = (
        TimedChange(at=0.0, step=Apply(UDP)),
        TimedChange(at=2.0, step=Delete(service=UDP)),
        TimedChange(at=10.0, step=Apply(idle)),
        TimedChange(at=30.0, step=Apply(UDP)),
    )
    flow = TimedFlow(at=6.0, sender=pod("a2"), to=UDP.cluster_ip, pause=1.0)
    schedule = replace(SCHEDULE, changes=changes, probes=(), flows=(flow,))
    lines = [
        FlowExchanged(
            at=at * SECOND, until=at * SECOND, number=0, opened=at == 6, outcomes=outcomes_text(outcomes)
        )
        for at, outcomes in ((6, (first,)), (20, (Failure.REJECTED,)), (lost_at, ()))
    ]
    found = judge_universe(schedule, Recording(tuple(lines)))
    assert [one.at for one in found.violations if one.at > 6] == ([lost_at] if bad else [])


def test_a_failure_of_the_subject_is_one_and_of_the_harness_is_not() -> None:
    for blamed in (True, False):
        found = verdict(failure=(Failed(at=5, subject=blamed, text="it ended"),))
        assert (found.failure, found.subject_failed) == ("it ended", blamed)


def test_a_universe_in_which_nothing_could_be_judged_is_broken() -> None:
    unclear = tuple(Probed(at=1, until=1, number=number, unclear="its agent has ended") for number in (0, 1))
    found = judge_universe(SCHEDULE, Recording(unclear))
    assert (found.result, found.failure) == ("broken", "no packet could be judged: its agent has ended")
    seen = Probed(at=SECOND, until=SECOND, number=0, outcomes=("rejected",), text="x")
    assert judge_universe(SCHEDULE, Recording((seen, *unclear))).failure == ""


def test_a_recording_survives_its_text() -> None:
    lines: tuple[Line, ...] = (
        Changed(at=1, number=2),
        Probed(at=1, until=2, number=3, outcomes=("dropped",), text="x"),
        LogEnded(at=3, node="a", text="y\nz"),
    )
    assert parse_recording(b"".join(map(encode_line, lines))).lines == lines


@pytest.mark.parametrize(
    "outcome", [*Failure, Delivered(ip_address("fd00::1"), 80, SourceIP.MASQUERADED), reached("a1")]
)
def test_an_outcome_survives_its_text(outcome: Outcome) -> None:
    (text,) = outcomes_text([outcome])
    assert outcome_from_text(text) == outcome


@pytest.mark.parametrize(("node", "bad"), [("a", False), ("b", True)])
def test_while_a_node_cannot_write_its_rules_may_be_those_of_before(node: str, bad: bool) -> None:  # noqa: FBT001
    refused = TimedFault(at=19.0, seconds=8.0, kind=FaultKind.WRITES_REFUSED, node=node)
    found = verdict(
        reached("a1"), reached("a1"), reached("a1"), schedule=replace(SCHEDULE, faults=(refused,))
    )
    assert bool(found.violations) is bad


LOCAL = service("local", "a1", type=Type.LOAD_BALANCER, external_policy=Policy.LOCAL, vips=(Vip(),))
CHECKS = (
    TimedCheck(at=10.0, sender=host("a"), node="a", to=LOCAL.health_check("a")),
    TimedCheck(at=10.0, sender=host("b"), node="b", to=LOCAL.health_check("b")),
    TimedCheck(at=10.0, sender=host("b"), node="b"),
    TimedCheck(at=26.0, sender=host("a"), node="a", to=LOCAL.health_check("a")),
    TimedCheck(at=26.0, sender=host("b"), node="b"),
)
LAWFUL = ("status 200", "status 503", "status 200", "refused, or not HTTP", "status 503")


@pytest.mark.parametrize("wrong", [None, *range(len(CHECKS))])
def test_health_ports_report_what_is_there(wrong: int | None) -> None:
    changes = (
        TimedChange(at=0.0, step=Apply(LOCAL)),
        TimedChange(at=20.0, step=Delete(LOCAL)),
        TimedChange(at=20.0, step=SetTaints("b", (LEAVING_TAINT,))),
    )
    schedule = replace(SCHEDULE, changes=changes, probes=(), checks=CHECKS)
    texts = ["status 404" if number == wrong else text for number, text in enumerate(LAWFUL)]
    lines = [
        HealthChecked(at=int(check.at * SECOND), until=int(check.at * SECOND), number=number, text=text)
        for number, (check, text) in enumerate(zip(CHECKS, texts, strict=True))
    ]
    found = judge_universe(schedule, Recording(tuple(lines)))
    assert found.judged == len(CHECKS)
    assert [CHECKS.index(one.sent) for one in found.violations] == ([] if wrong is None else [wrong])
