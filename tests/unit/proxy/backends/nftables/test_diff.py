"""From one plan to the next, through a model of the table that refuses what the kernel refuses."""

from dataclasses import replace
from ipaddress import ip_network
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.linux.netfilter.rules import Goto
from kproxy.model.network import Family
from kproxy.proxy.backends.nftables import names
from kproxy.proxy.backends.nftables.commands import AddChain, AddElements, AddRules, Command, DeleteElements
from kproxy.proxy.backends.nftables.compile import assign_numbers
from kproxy.proxy.backends.nftables.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.nftables.diff import Leftovers, Rewrite, Update, diff
from kproxy.proxy.backends.nftables.names import FrontendMaps, PoolRole
from kproxy.proxy.plan import Exposure, NodePorts, Plan, PlanSettings, ServicePlan
from kproxy.proxy.plan import make_plan as planned
from kproxy.proxy.snapshot import normalise
from tests.support.nftables_model import OPTIONS, contents, fresh
from tests.support.nftables_table import SimulatedTable, TransactionRefused
from tests.support.objects import cluster, slice_of
from tests.support.objects import endpoint as api_endpoint
from tests.support.objects import service as api_service
from tests.support.plans import PODS, frontend, plan_of, plans, pool, service


def web(*endpoints: str, number: int = 1, affinity: int | None = None) -> ServicePlan:
    front = frontend(Exposure.CLUSTER_IP, f"10.96.0.{number}", 80, pool(*endpoints))
    return service(front, name=f"ns/svc{number}:http", affinity=affinity)


def backends(*numbers: int) -> list[str]:
    return [f"10.0.0.{number}:80" for number in numbers]


def assert_dense(table: SimulatedTable) -> None:
    """Every number below the count that the frontend's chain draws has an endpoint, and no other."""
    for way in FrontendMaps:
        for choice in PoolRole:
            drawn = {
                key: int(value.chain.rpartition("-")[2])
                for key, value in table.elements[choice.dispatch(way)].items()
                if isinstance(value, Goto) and "one-of" in value.chain
            }
            wanted = {(*key, number) for key, count in drawn.items() for number in range(count)}
            assert set(table.elements[choice.endpoints(way)]) == wanted


@given(st.lists(plans(), min_size=1, max_size=4))
@settings(deadline=None)
def test_any_way_to_a_plan_ends_where_writing_it_afresh_does(history: list[Plan]) -> None:
    table = SimulatedTable(Family.IPV4)
    believed: DesiredState | None = None
    leftovers: Leftovers = {}
    for wanted in history:
        desired = desired_state(wanted, OPTIONS, believed)
        transaction = diff(believed, desired, leftovers)
        table.apply(transaction)
        believed, leftovers = desired, transaction.leftovers
        assert contents(table, leftovers) == contents(fresh(wanted))
        assert {name: table.chains[name] for name in leftovers} == leftovers
        assert_dense(table)


def test_an_unchanged_plan_is_no_transaction() -> None:
    plan = plan_of(web(*backends(1, 2)))
    believed = desired_state(plan, OPTIONS)
    assert list(Update(believed, desired_state(plan, OPTIONS, believed))) == []


def change(*services: tuple[ServicePlan, ServicePlan]) -> Update:
    believed = desired_state(plan_of(*(old for old, _ in services)), OPTIONS)
    return Update(believed, desired_state(plan_of(*(new for _, new in services)), OPTIONS, believed))


def test_an_endpoint_that_is_replaced_is_one_element_out_and_one_in() -> None:
    same = web(*backends(7, 8), number=2)
    found = change((web(*backends(1, 2, 3)), web(*backends(1, 3, 9))), (same, same))
    assert str(found).splitlines() == [
        "delete element ip kube-proxy service-endpoints { 10.96.0.1 . tcp . 80 . 1 : 10.0.0.2 . 80 }",
        "add element ip kube-proxy service-endpoints { 10.96.0.1 . tcp . 80 . 1 : 10.0.0.9 . 80 }",
    ]


@pytest.mark.parametrize("count", [10, 50])
def test_the_first_of_many_endpoints_goes_without_moving_the_others(count: int) -> None:
    before = web(*backends(*range(1, count + 1)))
    found = change((before, web(*backends(*range(2, count + 1)))))
    moved = [
        key
        for command in found
        if isinstance(command, AddElements) and command.collection.name == "service-endpoints"
        for key, _ in command.elements
    ]
    assert [key[-1] for key in moved] == [0], "the last takes the place of the first"


def test_a_chain_for_a_new_count_comes_with_its_first_user_and_goes_after_its_last() -> None:
    table = SimulatedTable(Family.IPV4)
    first = desired_state(plan_of(web(*backends(1, 2))), OPTIONS)
    table.apply(Rewrite(first))
    assert "one-of-2" in table.chains
    second = desired_state(plan_of(web(*backends(1, 2, 3))), OPTIONS, first)
    grown = Update(first, second)
    table.apply(grown)
    assert set(grown.leftovers) == {"one-of-2"}
    third = desired_state(plan_of(web(*backends(1, 2, 4))), OPTIONS, second)
    table.apply(Update(second, third, grown.leftovers))
    assert "one-of-2" not in table.chains
    assert "one-of-3" in table.chains


def test_a_chain_is_complete_in_the_kernel_before_an_element_leads_to_it() -> None:
    """A packet may have entered the hook before the change, and look its elements up after it."""
    for affinity in (None, 60):
        found = change((web(*backends(1)), web(*backends(1, 2), affinity=affinity)))
        first, second = (list(batch) for batch in found.batches())
        assert {type(command) for command in first} == {AddChain, AddRules}
        assert not [command for command in second if isinstance(command, AddChain | AddRules)]
        assert any(isinstance(command, AddElements) for command in second)


def test_a_leftover_that_is_wanted_again_is_filled_again() -> None:
    table = SimulatedTable(Family.IPV4)
    two, three = plan_of(web(*backends(1, 2))), plan_of(web(*backends(1, 2, 3)))
    first = desired_state(two, OPTIONS)
    table.apply(Rewrite(first))
    grown = Update(first, desired_state(three, OPTIONS, first))
    table.apply(grown)
    back = Update(grown.desired, desired_state(two, OPTIONS, grown.desired), grown.leftovers)
    table.apply(back)
    assert contents(table, back.leftovers) == contents(fresh(two))


def sizes(table: SimulatedTable) -> tuple[int, int, int]:
    rules = sum(len(chain.rules) for chain in table.chains.values())
    return rules, len(table.chains), len(table.collections)


def test_rules_and_chains_do_not_depend_on_how_many_services_there_are() -> None:
    def cluster(count: int) -> SimulatedTable:
        return fresh(plan_of(*(web(*backends(1, 2, 3), number=number) for number in range(1, count + 1))))

    few, many = cluster(10), cluster(200)
    assert sizes(few) == sizes(many)
    assert len(many.elements["service-ips"]) == 200


def test_what_several_services_need_stays_until_the_last_of_them_has_gone() -> None:
    """Two ports of one Service have one cluster IP."""
    http = service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, pool("10.0.0.1:80")), name="ns/a:http")
    https = service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 443, pool("10.0.0.1:443")), name="ns/a:https")
    table = SimulatedTable(Family.IPV4)
    both = desired_state(plan_of(http, https), OPTIONS)
    table.apply(Rewrite(both))
    one = desired_state(plan_of(https), OPTIONS, both)
    table.apply(Update(both, one))
    assert len(table.elements[names.CLUSTER_IPS]) == 1
    none = desired_state(plan_of(), OPTIONS, one)
    table.apply(Update(one, none))
    assert table.elements[names.CLUSTER_IPS] == {}


def test_another_detector_writes_the_table_anew_and_other_service_cidrs_do_not() -> None:
    plan = plan_of(web(*backends(1)))
    believed = desired_state(plan, OPTIONS)
    without = desired_state(plan_of(*plan.services, detector=None), OPTIONS, believed)
    assert isinstance(diff(believed, without), Rewrite)
    known = replace(
        plan,
        service_cidrs=(ip_network("10.96.0.0/16"), ip_network("10.96.4.0/24"), ip_network("10.97.0.0/16")),
    )
    found = diff(believed, desired_state(known, OPTIONS, believed))
    assert str(found) == "add element ip kube-proxy service-cidrs { 10.96.0.0/15 }\n"


MASQUERADE = {
    "off-cluster": PlanSettings(family=Family.IPV4, node="node-1", detector=PODS),
    "all": PlanSettings(family=Family.IPV4, node="node-1", detector=PODS, masquerade_all=True),
    "none": PlanSettings(family=Family.IPV4, node="node-1"),
}


@pytest.mark.parametrize("of", MASQUERADE)
def test_the_first_cluster_ip_of_a_node_and_the_last_to_go_leave_the_table_in_place(of: str) -> None:
    """What is masqueraded follows from the settings, whatever Services there are."""
    known = MASQUERADE[of]
    one = cluster(api_service(), slice_of(api_endpoint("10.0.0.1")))
    plans = [planned(normalise(each, Family.IPV4), known) for each in (cluster(), one, cluster())]
    programs = [desired_state(plan, OPTIONS) for plan in plans]
    for before, after in pairwise(programs):
        assert isinstance(diff(before, after), Update)
    other = MASQUERADE["all" if of != "all" else "off-cluster"]
    changed = desired_state(planned(normalise(one, Family.IPV4), other), OPTIONS)
    assert isinstance(diff(programs[1], changed), Rewrite), "other settings do write it anew"


def test_other_node_addresses_are_elements_and_all_addresses_another_rule() -> None:
    one = plan_of(node_ports=NodePorts((ip_network("192.0.2.1").network_address,), localhost=False))
    two = plan_of(node_ports=NodePorts((ip_network("192.0.2.2").network_address,), localhost=False))
    believed = desired_state(one, OPTIONS)
    moved = diff(believed, desired_state(two, OPTIONS, believed))
    assert [type(command) for command in moved] == [DeleteElements, AddElements]
    everywhere = plan_of(node_ports=NodePorts(None, localhost=False))
    assert isinstance(diff(believed, desired_state(everywhere, OPTIONS, believed)), Rewrite)


@given(st.lists(st.integers(1, 30), unique=True), st.lists(st.integers(1, 30), unique=True))
def test_numbers_are_dense_and_those_that_can_stay_do(old: list[int], new: list[int]) -> None:
    before = pool(*backends(*old)).endpoints
    wanted = pool(*backends(*new)).endpoints
    placed = assign_numbers(before, wanted)
    assert sorted(placed, key=str) == sorted(wanted, key=str)
    for number, endpoint in enumerate(before[: len(wanted)]):
        if endpoint in wanted:
            assert placed[number] == endpoint


@pytest.mark.parametrize(
    "wrong",
    [
        "an element that is not there",
        "a key with another value",
        "a verdict to a chain that is not there",
    ],
)
def test_the_model_refuses_what_the_kernel_refuses(wrong: str) -> None:
    table = fresh(plan_of(web(*backends(1))))
    dispatch = table.collections["service-ips"]
    (key,) = table.elements["service-ips"]
    commands: dict[str, Command] = {
        "an element that is not there": DeleteElements(dispatch, (((*key[:-1], 81), None),)),
        "a key with another value": AddElements(dispatch, ((key, Goto("one-of-7")),)),
        "a verdict to a chain that is not there": AddElements(
            dispatch, (((*key[:-1], 81), Goto("nowhere")),)
        ),
    }
    with pytest.raises(TransactionRefused):
        table.apply([commands[wrong]])
