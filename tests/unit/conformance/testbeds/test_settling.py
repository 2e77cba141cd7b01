"""Sentinels: two for each wait, gone at the next one, and a node that has never served is distinguished from one that is late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.binding.world import Change, Key, Put, Remove, document_key
from kproxy.conformance.engine.convergence import ChangeKind
from kproxy.conformance.testbed import HarnessError, NothingServed, SubjectFailed
from kproxy.conformance.testbeds.barrier import Place
from kproxy.conformance.testbeds.sentinel import (
    MOVED,
    MOVED_PORT,
    NAMESPACE,
    SENTINEL_PORT,
    Sentinel,
)
from kproxy.conformance.testbeds.settling import Settling
from kproxy.lab.probes.observation import Answered, Observation, ProbeRequest, Silent, Socket
from kproxy.lab.topology import LAB, NODES
from kproxy.model.network import Family


class Subject:
    """Serves the sentinels that are there, from nodes that are at work."""

    def __init__(self) -> None:
        self.written: list[Change] = []
        self.requested: list[ProbeRequest] = []
        self.working = {"a", "b"}
        self.reached = {"a", "b"}
        self.who = LAB.sentinel_pod
        self.objects: dict[Key, Document] = {}

    async def write(self, changes: Sequence[Change]) -> None:
        self.written += changes
        for change in changes:
            if isinstance(change, Put):
                self.objects[document_key(change.document)] = change.document
            elif isinstance(change, Remove):
                del self.objects[change.key]

    async def probe(self, request: ProbeRequest) -> Observation:
        directly = request.port == SENTINEL_PORT
        if not directly:
            self.requested.append(request)
        if request.sender not in (self.reached if directly else self.working):
            return Silent()
        somewhere = Socket(LAB.pod_address["a1"][Family.IPV4], 1)
        who = {SENTINEL_PORT: self.who, MOVED_PORT: MOVED}.get(self.target(request) or 0, "somebody beyond")
        return Answered(
            who=LAB.sentinel_pod if directly else who, at=somewhere, peer=somewhere, own=somewhere
        )

    def settling(self, families: Sequence[Family] = tuple(Family)) -> Settling:
        return Settling(self.write, self.probe, reported, 0.05, replace(LAB, families=tuple(families)))

    def target(self, request: ProbeRequest) -> int | None:
        """Where a Service leads that the request is for; None: there is none."""
        for kind, _, name in self.objects:
            if kind == "Service":
                spec = self.objects[kind, NAMESPACE, name]["spec"]
                at = {(address, spec["ports"][0]["port"]) for address in spec["clusterIPs"]}
                if (str(request.destination), request.port) in at:
                    return int(spec["ports"][0]["targetPort"])
        return None


def reported(waiting: Sequence[Place], seconds: float) -> str:
    return f"{waiting} after {seconds}"


def settle(settling: Settling) -> None:
    asyncio.run(settling.settle())


def test_a_second_sentinel_follows_the_first_and_both_go_at_the_next_wait() -> None:
    subject = Subject()
    settling = subject.settling()
    settle(settling)
    first = [Put(document) for number in (0, 1) for document in Sentinel(number).documents]
    assert subject.written == first
    settle(settling)
    removed = [Remove(key) for number in (0, 1) for key in Sentinel(number).keys]
    assert subject.written[len(first) : len(first) + len(removed)] == removed


def test_time_passes_as_long_as_changes_have_taken_and_nothing_is_written() -> None:
    subject = Subject()
    settling = subject.settling()
    settle(settling)
    settling.applied = [replace(settling.applied[-1], seconds=0.001)]
    written, checked = list(subject.written), [0]
    asyncio.run(settling.pass_time(lambda: checked.append(1)))
    assert (subject.written, checked) == (written, [0, 1])


@pytest.mark.parametrize(
    ("slowest", "min_sync_seconds", "passed"),
    [(0.001, 0.0, 1.0), (0.001, 1.0, 3.0), (0.4, 1.0, 4.0), (9.0, 1.0, 5.0)],
)
def test_a_change_alone_may_wait_for_the_subjects_minimum_between_syncs(
    monkeypatch: pytest.MonkeyPatch, slowest: float, min_sync_seconds: float, passed: float
) -> None:
    subject = Subject()
    settling = Settling(subject.write, subject.probe, reported, 60, replace(LAB, families=(Family.IPV4,)))
    settle(settling)
    settling.applied = [replace(settling.applied[-1], seconds=slowest)]
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(settling.pass_time(lambda: None, min_sync_seconds))
    assert slept == [passed]


@pytest.mark.parametrize(
    ("time_limit", "slowest", "passed"),
    [(60, 0.1, 5.0), (3600, 0.1, 5.0), (3600, 9.0, 45.0), (6, 9.0, 0.5), (3600, None, 300.0)],
)
def test_a_long_time_limit_does_not_make_the_wait_for_removed_rules_longer(
    monkeypatch: pytest.MonkeyPatch, time_limit: float, slowest: float | None, passed: float
) -> None:
    """A run with ``--sync-timeout 3600`` waited for five minutes in silence after each removal."""
    subject = Subject()
    ipv4 = replace(LAB, families=(Family.IPV4,))
    settling = Settling(subject.write, subject.probe, reported, time_limit, ipv4)
    settle(settling)
    settling.applied = [replace(one, seconds=slowest) for one in settling.applied[-1:] if slowest]
    settling.expect_restored(without_change=True)
    slept: list[float] = []
    really_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await really_sleep(seconds if len(slept) > 1 else 0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    settle(settling)
    assert slept[0] == passed


def test_what_another_program_removed_must_be_there_again_before_a_sentinel_makes_a_proxy_write() -> None:
    subject = Subject()
    settling = subject.settling()
    settle(settling)
    settling.expect_restored(without_change=True)
    written, subject.working = list(subject.written), {"a"}
    settle(settling)
    assert subject.written == written, "the case's checks show what is missing"
    subject.working = {"a", "b"}
    settling.expect_restored(without_change=True)
    settle(settling)
    assert len(subject.written) > len(written)


def test_a_sentinel_follows_where_a_proxy_need_not_write_without_a_change() -> None:
    subject = Subject()
    settling = subject.settling()
    settle(settling)
    settling.expect_restored(without_change=False)
    written = list(subject.written)
    settle(settling)
    assert len(subject.written) > len(written)


def test_every_node_is_queried_in_every_family_that_is_served() -> None:
    subject = Subject()
    settle(subject.settling([Family.IPV6]))
    requested = {(one.sender, one.destination) for one in subject.requested}
    assert requested == {
        (node, Sentinel(number).cluster_ip(Family.IPV6)) for node in NODES for number in (0, 1)
    }
    assert Sentinel(0, families=(Family.IPV6,)).documents[0]["spec"]["ipFamilyPolicy"] == "SingleStack"


def test_who_has_never_served_is_distinguished_from_who_is_late() -> None:
    subject = Subject()
    settling = subject.settling()
    subject.working = {"a"}
    with pytest.raises(NothingServed, match=r"'b'.* after 0\.05"):
        settle(settling)
    subject.working = {"a", "b"}
    settle(settling)
    subject.working = {"b"}
    with pytest.raises(SubjectFailed, match="'a'") as late:
        settle(settling)
    assert not isinstance(late.value, NothingServed)


def test_where_the_pod_is_not_reached_without_a_service_either_the_lab_is_broken() -> None:
    subject = Subject()
    subject.working = subject.reached = {"a"}
    with pytest.raises(HarnessError, match="node b does not reach pod a3 by IPv4, without any Service"):
        settle(subject.settling())


def test_a_lab_that_worked_before_the_subject_came_is_not_at_fault_later() -> None:
    subject = Subject()
    settling = subject.settling()
    asyncio.run(settling.control())
    subject.working = subject.reached = {"a"}
    with pytest.raises(NothingServed):
        settle(settling)


def test_another_pods_answer_is_no_sentinels() -> None:
    subject = Subject()
    subject.who = "a1"
    with pytest.raises(NothingServed):
        settle(subject.settling())


def test_a_node_that_cannot_write_is_not_waited_for() -> None:
    subject = Subject()
    settling = subject.settling()
    settle(settling)
    settling.excuse("a")
    subject.working = {"b"}
    settle(settling)


def test_a_node_that_cannot_write_one_family_is_queried_in_the_other_and_left_to_the_questions() -> None:
    subject = Subject()
    settling = subject.settling()
    settle(settling)
    settling.excuse("a", Family.IPV6)
    subject.requested = []
    settle(settling)
    assert {one.destination.version for one in subject.requested if one.sender == "a"} == {4}
    subject.working = {"b"}
    settle(settling)
    subject.working = {"a"}
    with pytest.raises(SubjectFailed, match="'b'"):
        settle(settling)


def test_a_node_that_can_write_again_is_waited_for_without_anything_new() -> None:
    subject = Subject()
    settling = subject.settling()
    settle(settling)
    settling.excuse("a")
    settle(settling)
    settling.expect("a")
    written, subject.requested = len(subject.written), []
    settle(settling)
    requested = [
        one.destination for one in subject.requested if one.sender == "a" and one.destination.version == 4
    ]
    last, new = Sentinel(3).cluster_ip(Family.IPV4), Sentinel(4).cluster_ip(Family.IPV4)
    assert requested[:2] == [last, new]
    assert len(subject.written) > written


def test_who_does_not_catch_up_by_itself_is_left_to_the_questions() -> None:
    subject = Subject()
    settling = subject.settling()
    settle(settling)
    settling.excuse("a")
    subject.working = {"b"}
    settle(settling)
    settling.expect("a")
    written = len(subject.written)
    settle(settling)
    assert len(subject.written) == written, "a new sentinel would make it write"
    subject.working = {"a", "b"}
    settle(settling)


def test_the_second_change_is_another_one_each_time_and_comes_alone() -> None:
    subject = Subject()
    settling = Settling(
        subject.write, subject.probe, reported, 5, replace(LAB, families=(Family.IPV4,)), varied=True
    )
    for _ in range(5):
        settle(settling)
    places = len(NODES)
    assert [one.kind for one in settling.applied[::places]] == [
        ChangeKind.MOVED,
        *(ChangeKind.TOGETHER, ChangeKind.CREATED, ChangeKind.DELETED),
        *(ChangeKind.TOGETHER, ChangeKind.PORT),
        *(ChangeKind.TOGETHER, ChangeKind.CREATED),
        *(ChangeKind.TOGETHER, ChangeKind.MOVED),
    ]
    assert {one.node for one in settling.applied} == set(NODES)
    assert len({name for _, _, name in subject.objects}) == 2, "a Service and its slice: the others are gone"


def test_a_node_that_is_late_has_its_own_time() -> None:
    subject = Subject()
    settling = Settling(subject.write, subject.probe, reported, 5, replace(LAB, families=(Family.IPV4,)))
    settle(settling)
    probe, late = subject.probe, iter(range(5))

    async def slowly(request: ProbeRequest) -> Observation:
        if request.sender == "b" and next(late, None) is not None:
            await asyncio.sleep(0.005)
            return Silent()
        return await probe(request)

    settling._probe = slowly
    settle(settling)
    times = {one.node: one.seconds for one in settling.applied if one.kind is ChangeKind.TOGETHER}
    assert times["a"] < times["b"] >= 0.025
