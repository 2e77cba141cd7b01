"""Health check node ports in the plan: whose, and for how many endpoints (``hcnp.scope``, ``hcnp.count-ips``)."""

from typing import Any

import pytest

from kproxy.model import api
from kproxy.model.network import Family
from kproxy.proxy.plan import HealthCheck, Plan, PlanSettings, make_plan
from kproxy.proxy.snapshot import normalise
from tests.support.objects import cluster, endpoint, service, slice_of

NODE = "node-1"
LOCAL: dict[str, Any] = {
    "type": "LoadBalancer",
    "external_traffic_policy": "Local",
    "health_check_node_port": 31000,
}


def planned(*objects: api.Service | api.EndpointSlice, family: Family = Family.IPV4) -> Plan:
    return make_plan(normalise(cluster(*objects), family), PlanSettings(family=family, node=NODE))


def count(*endpoints: api.Endpoint) -> int:
    (check,) = planned(service(**LOCAL), slice_of(*endpoints)).health_checks
    return check.endpoints


def test_a_load_balancer_with_policy_local_has_one() -> None:
    made = planned(service(**LOCAL), slice_of(endpoint("10.0.0.1", NODE)))
    assert made.health_checks == (HealthCheck(("test", "web"), 31000, 1),)


@pytest.mark.parametrize(
    "other",
    [{"type": "NodePort"}, {"external_traffic_policy": "Cluster"}, {"health_check_node_port": 0}],
    ids=["node port", "policy Cluster", "no port"],
)
def test_no_other_service_has_one(other: dict[str, Any]) -> None:
    assert planned(service(**{**LOCAL, **other})).health_checks == ()


def test_only_ready_endpoints_of_this_node_count() -> None:
    assert count() == 0
    assert count(endpoint("10.0.0.1", "node-2")) == 0
    assert count(endpoint("10.0.0.1", NODE, ready=False)) == 0
    assert count(endpoint("10.0.0.1", NODE, ready=False, serving=True, terminating=True)) == 0
    assert count(endpoint("10.0.0.1", NODE, ready=True, serving=False, terminating=True)) == 1
    assert count(endpoint("10.0.0.1", NODE), endpoint("10.0.0.2", "node-2")) == 1


def test_two_ports_of_three_pods_are_three_endpoints() -> None:
    ports = [api.ServicePort("http", port=80), api.ServicePort("admin", port=81)]
    targets = [api.EndpointPort("http", port=8080), api.EndpointPort("admin", port=8081)]
    pods = [endpoint(f"10.0.0.{n}", NODE) for n in (1, 2, 3)]
    (check,) = planned(service(ports=ports, **LOCAL), slice_of(*pods, ports=targets)).health_checks
    assert check.endpoints == 3


def test_endpoints_count_while_the_slices_have_not_followed_a_change_of_ports() -> None:
    ports = [api.ServicePort("new", port=80)]
    pods = slice_of(endpoint("10.0.0.1", NODE), ports=[api.EndpointPort("old", port=8080)])
    made = planned(service(ports=ports, **LOCAL), pods)
    assert [check.endpoints for check in made.health_checks] == [1]


def test_each_family_counts_its_own_endpoints() -> None:
    dual = service(cluster_ips=["10.96.0.1", "fd00::1"], **LOCAL)
    objects = (dual, slice_of(endpoint("10.0.0.1", NODE)))
    assert [check.endpoints for check in planned(*objects).health_checks] == [1]
    assert [check.endpoints for check in planned(*objects, family=Family.IPV6).health_checks] == [0]


def test_a_count_that_changes_makes_another_plan_although_no_rule_differs() -> None:
    """An endpoint that begins to terminate goes on serving alone: the pool stays, the count does not."""
    before = planned(service(**LOCAL), slice_of(endpoint("10.0.0.1", NODE)))
    after = planned(
        service(**LOCAL), slice_of(endpoint("10.0.0.1", NODE, ready=False, serving=True, terminating=True))
    )
    assert before.services == after.services
    assert before != after
