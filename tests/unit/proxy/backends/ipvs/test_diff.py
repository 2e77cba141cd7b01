"""The order of steps, and that executing them leads from any plan to any other."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kproxy.linux.netfilter.matches import DESTINATION_IS_LOCAL
from kproxy.linux.netfilter.rules import Jump
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.ipvs.compile import Context
from kproxy.proxy.backends.ipvs.desired_state import DesiredState, delta, desired_state
from kproxy.proxy.backends.ipvs.diff import (
    KernelState,
    ReplaceChains,
    Transaction,
    WriteInterimChains,
    full_delta,
    transaction,
)
from kproxy.proxy.backends.ipvs.names import OWN_SETS, SERVICES, IpSet
from kproxy.proxy.backends.ipvs.rules import MarkKey
from kproxy.proxy.backends.ipvs.static_rules import Options
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import Exposure, Plan, PlanSettings, Pool, PoolEndpoint, PoolScope, ServicePlan
from kproxy.proxy.plan import make_plan as planned
from kproxy.proxy.snapshot import normalise
from tests.support.ipvs_model import CONTEXT, agrees, execute, node_with, programmed
from tests.support.objects import cluster, endpoint, slice_of
from tests.support.objects import service as api_service
from tests.support.plans import PODS, frontend, plan_of, plans, pool, service

CONTEXTS = st.sampled_from([CONTEXT, node_with(), node_with("192.0.2.1", "192.0.2.2", "203.0.113.1")])
"""A node may gain addresses and lose them; one of these is a Service's too."""
EVERYWHERE = pool("10.0.1.1:8080", "10.0.2.1:8080")
HERE = pool("10.0.1.1:8080", scope=PoolScope.LOCAL)


def test_the_first_cluster_ip_of_a_node_and_the_last_to_go_leave_the_chains_as_they_are() -> None:
    """What is masqueraded follows from the settings, whatever Services there are."""
    settings = PlanSettings(family=Family.IPV4, node="node-1", detector=PODS)
    one = cluster(api_service(), slice_of(endpoint("10.0.0.1")))
    plans = [planned(normalise(each, Family.IPV4), settings) for each in (cluster(), one, cluster())]
    programs = [programmed(plan) for plan in plans]
    assert [delta(before, after).ruleset for before, after in pairwise(programs)] == [None, None]
    everything = planned(normalise(one, Family.IPV4), replace(settings, masquerade_all=True))
    assert delta(programs[1], programmed(everything)).ruleset is not None, "other settings are other chains"


def kernel_with(plan: Plan) -> tuple[KernelState, DesiredState]:
    picture, desired = KernelState(), programmed(plan)
    execute(picture, transaction(picture, full_delta(picture, desired), Family.IPV4))
    return picture, desired


def to(plan: Plan, picture: KernelState, before: DesiredState) -> Transaction:
    return transaction(picture, delta(before, programmed(plan, before)), Family.IPV4)


@given(plans(), plans(), plans(), CONTEXTS, CONTEXTS)
def test_a_change_leads_to_the_same_kernel_as_a_fresh_start(
    first: Plan, second: Plan, third: Plan, then: Context, at_last: Context
) -> None:
    """Of Services, of the node's addresses, or of both."""
    picture, before = kernel_with(first)
    assert agrees(picture, before)
    for plan, context in ((first, then), (second, then), (third, at_last)):
        after = programmed(plan, before, context)
        execute(picture, transaction(picture, delta(before, after), Family.IPV4))
        assert agrees(picture, programmed(plan, context=context))
        before = after


@given(plans(), plans())
def test_a_proxy_that_reads_what_another_left_corrects_all_of_it(left: Plan, wanted: Plan) -> None:
    picture, _ = kernel_with(left)
    desired = programmed(wanted)
    execute(picture, transaction(picture, full_delta(picture, desired), Family.IPV4))
    assert agrees(picture, desired)


@given(plans())
def test_nothing_to_do_is_no_step(plan: Plan) -> None:
    picture, before = kernel_with(plan)
    assert to(plan, picture, before).steps == ()


def local(*exposures: tuple[Exposure, str | None, int], here: Pool = HERE) -> ServicePlan:
    return service(*(frontend(*one, here, shortcut=EVERYWHERE) for one in exposures))


def test_a_shortcut_that_is_used_no_more_keeps_its_connections_and_is_not_made_for_nothing() -> None:
    exposed = (Exposure.LOAD_BALANCER, "203.0.113.9", 80)
    cluster_wide = plan_of(service(frontend(*exposed, EVERYWHERE)))
    picture, _ = kernel_with(cluster_wide)
    assert not any(isinstance(key, MarkKey) for key in picture.servers)
    picture, before = kernel_with(plan_of(local(exposed)))
    execute(picture, to(cluster_wide, picture, before))
    (mark,) = (key for key in picture.servers if isinstance(key, MarkKey))
    assert set(picture.destinations[mark].values()) == {0}


def text(todo: Transaction) -> list[str]:
    return str(todo).split("\n")


def before_and_after(todo: Transaction, first: str, second: str) -> bool:
    lines = text(todo)
    return lines.index(first) < lines.index(second)


VIP = (Exposure.LOAD_BALANCER, "203.0.113.9", 80)
SERVER = "tcp 203.0.113.9:80"


def test_a_new_service_is_guarded_first_and_reachable_last() -> None:
    desired = programmed(plan_of(local(VIP)))
    todo = transaction(KernelState(), full_delta(KernelState(), desired), Family.IPV4)
    lines = text(todo)
    shortcut = next(line for line in lines if line.startswith("add KUBE-LOCAL-SHORTCUT "))
    for first, second in (
        (next(line for line in lines if line.startswith("add fwmark ")), shortcut),
        (shortcut, f"add {SERVER} rr flags 0x0"),
        ("add KUBE-LOAD-BALANCER-LOCAL 203.0.113.9,tcp:80", f"add {SERVER} rr flags 0x0"),
        (f"add {SERVER} -> 10.0.1.1:8080 weight 1", "add KUBE-IPVS-SERVED 203.0.113.9,tcp:80"),
        ("add KUBE-IPVS-SERVED 203.0.113.9,tcp:80", "bind 203.0.113.9"),
    ):
        assert before_and_after(todo, first, second), (first, second)


def test_a_service_that_goes_is_unreachable_first_and_loses_its_guards_last() -> None:
    picture, before = kernel_with(plan_of(local(VIP)))
    todo = to(plan_of(), picture, before)
    for first, second in (
        ("unbind 203.0.113.9", f"delete {SERVER}"),
        ("del KUBE-IPVS-SERVED 203.0.113.9,tcp:80", f"delete {SERVER}"),
        (f"delete {SERVER}", "del KUBE-LOAD-BALANCER-LOCAL 203.0.113.9,tcp:80"),
        (f"delete {SERVER}", "del KUBE-LOCAL-SHORTCUT 203.0.113.9,tcp:80"),
    ):
        assert before_and_after(todo, first, second), (first, second)
    assert text(todo)[-1].startswith("delete fwmark ")


def test_what_another_proxy_served_is_let_in_before_chains_that_match_it() -> None:
    """kube-proxy has no set of what is served: its chains let in what is in several."""
    old = service(frontend(*VIP, EVERYWHERE))
    new = service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, HERE), name="ns/new:http")
    picture, _ = kernel_with(plan_of(old))
    picture.members = {member for member in picture.members if member.set not in OWN_SETS}
    todo = transaction(picture, full_delta(picture, programmed(plan_of(old, new))), Family.IPV4)
    for first, second in (
        ("add KUBE-IPVS-SERVED 203.0.113.9,tcp:80", "chains of two modes"),
        ("chains of two modes", "add tcp 10.96.0.1:80 rr flags 0x0"),
        ("add tcp 10.96.0.1:80 -> 10.0.1.1:8080 weight 1", "add KUBE-IPVS-SERVED 10.96.0.1,tcp:80"),
    ):
        assert before_and_after(todo, first, second), (first, second)


def test_the_chains_of_a_start_leave_what_another_mode_serves_alone() -> None:
    """Packets that KUBE-SERVICES accepts, or marks for the acceptance in KUBE-FORWARD, pass that mode's rules by."""
    desired = programmed(plan_of(local(VIP)))
    todo = transaction(KernelState(), full_delta(KernelState(), desired), Family.IPV4)
    assert before_and_after(todo, f"add {SERVER} rr flags 0x0", "chains")
    assert before_and_after(todo, "bind 203.0.113.9", "chains")
    interim, final = (
        step.ruleset.chains[TableName.NAT][SERVICES]
        for step in todo.steps
        if isinstance(step, WriteInterimChains | ReplaceChains)
    )
    assert all(rule.steps[0] == DESTINATION_IS_LOCAL and isinstance(rule.steps[-1], Jump) for rule in interim)
    assert len(interim) == sum(isinstance(rule.steps[-1], Jump) for rule in final) < len(final)


def test_chains_are_written_when_they_differ() -> None:
    picture, before = kernel_with(plan_of())
    first = to(plan_of(service(frontend(*VIP, EVERYWHERE))), picture, before)
    assert "chains" not in text(first)
    assert text(to(plan_of(detector=None), picture, before)) == ["chains"]


def test_no_remote_endpoint_is_ever_reached_without_masquerading() -> None:
    """Policy Cluster to Local and back: the set that masquerades holds while remote endpoints may be chosen."""
    everywhere = service(frontend(*VIP, EVERYWHERE))
    member, remote = "KUBE-LOAD-BALANCER-LOCAL 203.0.113.9,tcp:80", f"{SERVER} -> 10.0.2.1:8080 weight"
    picture, before = kernel_with(plan_of(everywhere))
    assert before_and_after(to(plan_of(local(VIP)), picture, before), f"edit {remote} 0", f"add {member}")
    picture, before = kernel_with(plan_of(local(VIP)))
    assert before_and_after(to(plan_of(everywhere), picture, before), f"del {member}", f"add {remote} 1")


def test_silence_comes_before_the_last_endpoint_goes_and_ends_after_the_first_comes() -> None:
    nobody = pool(scope=PoolScope.LOCAL)
    member, endpoint = "KUBE-EXTERNAL-NO-LOCAL 203.0.113.9,tcp:80", f"{SERVER} -> 10.0.1.1:8080 weight"
    picture, before = kernel_with(plan_of(local(VIP)))
    assert before_and_after(
        to(plan_of(local(VIP, here=nobody)), picture, before), f"add {member}", f"edit {endpoint} 0"
    )
    picture, before = kernel_with(plan_of(local(VIP, here=nobody)))
    assert before_and_after(to(plan_of(local(VIP)), picture, before), f"add {endpoint} 1", f"del {member}")


def test_silence_needs_no_virtual_server_which_would_refuse_what_conntrack_knows() -> None:
    nobody = pool(scope=PoolScope.LOCAL)
    picture, before = kernel_with(plan_of(local(VIP, here=nobody)))
    (mark,) = picture.servers
    assert isinstance(mark, MarkKey), "the node's own way to endpoints elsewhere, and no server for clients"
    execute(picture, to(plan_of(local(VIP)), picture, before))
    assert SERVER in map(str, picture.servers), "the first endpoint here"
    unused, _ = kernel_with(plan_of(service(frontend(*VIP, pool()))))
    assert SERVER in map(str, unused.servers), "no endpoint anywhere is a refusal"


def test_source_ranges_stand_before_the_firewall_that_matches_them() -> None:
    guarded = service(frontend(*VIP, EVERYWHERE, sources=("10.0.0.0/8",)))
    opened = service(frontend(*VIP, EVERYWHERE))
    firewall = "KUBE-LOAD-BALANCER-FW 203.0.113.9,tcp:80"
    source = "KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.9,tcp:80,10.0.0.0/8"
    picture, before = kernel_with(plan_of(opened))
    assert before_and_after(to(plan_of(guarded), picture, before), f"add {source}", f"add {firewall}")
    picture, before = kernel_with(plan_of(guarded))
    assert before_and_after(to(plan_of(opened), picture, before), f"del {firewall}", f"del {source}")


def test_an_endpoint_change_is_one_order_an_endpoint() -> None:
    old = service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, pool("10.0.1.1:80", "10.0.1.2:80")))
    new = service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, pool("10.0.1.1:80", "10.0.1.3:80")))
    picture, before = kernel_with(plan_of(old))
    todo = to(plan_of(new), picture, before)
    assert text(todo) == [
        "add tcp 10.96.0.1:80 -> 10.0.1.3:80 weight 1",
        "edit tcp 10.96.0.1:80 -> 10.0.1.2:80 weight 0",
    ]
    assert len(todo.draining) == 1


def test_datagrams_are_cut_unless_their_endpoint_still_serves() -> None:
    served = PoolEndpoint(ip_address("10.0.1.2"), 80, may_be_here=False)

    def requested(*endpoints: str, serving: tuple[PoolEndpoint, ...] = ()) -> Plan:
        reached = pool(*endpoints)
        one = service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 53, reached), protocol=Protocol.UDP)
        return plan_of(msgspec.structs.replace(one, serving=serving))

    picture, before = kernel_with(requested("10.0.1.1:80", "10.0.1.2:80", "10.0.1.3:80"))
    assert text(to(requested("10.0.1.1:80", serving=(served,)), picture, before)) == [
        "edit udp 10.96.0.1:53 -> 10.0.1.2:80 weight 0",
        "delete udp 10.96.0.1:53 -> 10.0.1.3:80",
    ]


def test_an_endpoint_that_returns_gets_its_weight_back() -> None:
    both = plan_of(
        service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, pool("10.0.1.1:80", "10.0.1.2:80")))
    )
    one = plan_of(service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, pool("10.0.1.1:80"))))
    picture, before = kernel_with(both)
    after = programmed(one, before)
    execute(picture, transaction(picture, delta(before, after), Family.IPV4))
    assert text(to(both, picture, after)) == ["edit tcp 10.96.0.1:80 -> 10.0.1.2:80 weight 1"]


def test_marks_of_shortcuts_differ_spare_the_masquerade_bit_and_are_found_again() -> None:
    services = [
        service(
            frontend(Exposure.LOAD_BALANCER, f"203.0.113.{i}", 80, HERE, shortcut=EVERYWHERE),
            name=f"ns/s{i}:p",
        )
        for i in range(1, 200)
    ]
    for bit in (0, 14, 23, 27, 31):
        options = Options(masquerade_mark=1 << bit)
        marks = [
            key.mark
            for key in desired_state(plan_of(*services), CONTEXT, options).virtuals()
            if isinstance(key, MarkKey)
        ]
        assert len(set(marks)) == len(services)
        assert not any(mark >> bit & 1 for mark in marks)
        later = desired_state(plan_of(*services[100:]), CONTEXT, options).virtuals()
        assert {key.mark for key in later if isinstance(key, MarkKey)} <= set(marks)


def test_a_frontend_keeps_its_shortcut_when_its_port_gets_another_name() -> None:
    def named(name: str) -> Plan:
        return plan_of(
            service(frontend(Exposure.EXTERNAL_IP, "203.0.113.9", 80, HERE, shortcut=EVERYWHERE), name=name)
        )

    picture, before = kernel_with(named("ns/s:"))
    assert any(isinstance(key, MarkKey) for key in picture.servers)
    renamed = desired_state(named("ns/s:http"), CONTEXT, Options(), before)
    assert not transaction(picture, delta(before, renamed), Family.IPV4).steps
    restarted = full_delta(picture, programmed(named("ns/s:http")))
    assert text(transaction(picture, restarted, Family.IPV4)) == ["chains of two modes", "chains"]


def test_a_shortcut_goes_with_its_frontend_though_others_of_the_service_port_stay() -> None:
    """``conntrack.udp.not-to-endpoint-of-deleted-service``: its connections must not stay with the shortcut of another."""
    first = (Exposure.EXTERNAL_IP, "203.0.113.9", 80)
    picture, before = kernel_with(plan_of(local(first, (Exposure.NODE_PORT, None, 30001))))
    assert sum(isinstance(key, MarkKey) for key in picture.servers) == 2
    execute(picture, to(plan_of(local(first)), picture, before))
    assert sum(isinstance(key, MarkKey) for key in picture.servers) == 1


def test_an_endpoint_of_two_services_stays_a_hairpin_until_both_are_gone() -> None:
    first, second = (
        service(frontend(Exposure.CLUSTER_IP, f"10.96.0.{i}", 80, HERE), name=f"ns/s{i}:p") for i in (1, 2)
    )
    picture, before = kernel_with(plan_of(first, second))
    after = programmed(plan_of(first), before)
    execute(picture, transaction(picture, delta(before, after), Family.IPV4))
    assert [member.text for member in picture.members if member.set is IpSet.LOOP_BACK] == [
        "10.0.1.1,tcp:8080,10.0.1.1"
    ]
