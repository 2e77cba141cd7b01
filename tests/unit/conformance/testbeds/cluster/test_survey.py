"""Which nodes of a cluster are used, which addresses may be had, and which clusters are left alone."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from kproxy.conformance.testbeds.cluster.connection import NoCluster
from kproxy.conformance.testbeds.cluster.production_guard import MAX_NODES, playground_hint, production_signs
from kproxy.conformance.testbeds.cluster.survey import (
    CONTROL_PLANE,
    ZONE,
    node_internal_addresses,
    object_name,
    pod_addresses,
    survey_cluster,
)
from kproxy.model.network import Family

V4, V6 = Family.IPV4, Family.IPV6
RANGES = [{"spec": {"cidrs": ["10.96.0.0/12", "fd00:96::/112"]}}]


def node(name: str, zone: str = "", *, ready: bool = True, control_plane: bool = False) -> dict[str, Any]:
    labels = {ZONE: zone} if zone else {}
    return {
        "metadata": {"name": name, "labels": labels | ({CONTROL_PLANE: ""} if control_plane else {})},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": "192.168.7.5"},
                {"type": "InternalIP", "address": "192.168.7.99"},
                {"type": "InternalIP", "address": "fd07::5"},
            ],
        },
    }


def chosen(*nodes: dict[str, Any]) -> tuple[list[str], str]:
    found = survey_cluster(nodes, [], RANGES)
    return [object_name(one) for one in found.nodes.values()], object_name(
        found.neighbour
    ) if found.neighbour else ""


def test_workers_are_taken_before_a_control_plane_which_is_the_neighbour() -> None:
    assert chosen(node("a-master", control_plane=True), node("w1"), node("w2")) == (["w1", "w2"], "a-master")


def test_nodes_of_two_zones_are_preferred() -> None:
    assert chosen(node("w1", "x"), node("w2", "x"), node("w3", "y")) == (["w1", "w3"], "w2")


def test_a_control_plane_is_taken_where_nothing_else_is() -> None:
    assert chosen(node("master", control_plane=True), node("w1")) == (["w1", "master"], "")


def test_zones_differ_only_if_both_have_one() -> None:
    assert survey_cluster([node("w1", "x"), node("w2", "y")], [], RANGES).zones_differ
    assert not survey_cluster([node("w1", "x"), node("w2")], [], RANGES).zones_differ
    assert not survey_cluster([node("w1", "x"), node("w2", "x")], [], RANGES).zones_differ


def test_fewer_than_two_ready_nodes_are_reported() -> None:
    cordoned = node("w3")
    cordoned["spec"]["unschedulable"] = True
    with pytest.raises(NoCluster, match="two nodes that are ready, here are: w1"):
        survey_cluster([node("w1"), node("w2", ready=False), cordoned], [], RANGES)


def test_a_cluster_without_a_service_cidr_is_refused_with_what_it_needs() -> None:
    with pytest.raises(NoCluster, match=r"networking\.k8s\.io/v1"):
        survey_cluster([node("w1"), node("w2")], [], [])


def test_what_services_have_is_taken() -> None:
    services: list[dict[str, Any]] = [
        {"spec": {"clusterIPs": ["10.96.0.1"], "ports": [{"port": 443}]}},
        {"spec": {"clusterIPs": ["None"], "ports": []}},
        {"spec": {"type": "ExternalName"}},
        {
            "spec": {
                "clusterIPs": ["10.96.0.9", "fd00:96::9"],
                "ports": [{"port": 80, "nodePort": 30123}],
                "healthCheckNodePort": 31000,
            }
        },
    ]
    found = survey_cluster([node("w1"), node("w2")], services, RANGES)
    assert found.taken_addresses == {ip_address(one) for one in ("10.96.0.1", "10.96.0.9", "fd00:96::9")}
    assert found.taken_ports == {30123, 31000}
    assert found.service_cidrs == {V4: ip_network("10.96.0.0/12"), V6: ip_network("fd00:96::/112")}
    assert found.families == (V4, V6)


def test_the_first_address_of_each_family_counts() -> None:
    assert node_internal_addresses(node("w1")) == {V4: ip_address("192.168.7.5"), V6: ip_address("fd07::5")}
    assert pod_addresses({"status": {"podIPs": [{"ip": "fd07::9"}]}}) == {V6: ip_address("fd07::9")}
    assert pod_addresses({"status": {}}) == {}


@pytest.mark.parametrize("context", ["prod", "eu-prod-1", "production", "acme.live", "PRD_2"])
def test_a_context_called_after_production_is_left_alone(context: str) -> None:
    assert production_signs(context, "https://10.0.0.1:6443", 3, ["kube-system"]) == [
        f"the context is called {context}"
    ]


@pytest.mark.parametrize("context", ["kind-test", "product-tests", "reproduce", "olive", "minikube"])
def test_a_context_of_a_test_cluster_is_used(context: str) -> None:
    own = ["kube-system", "kube-flannel", "local-path-storage", "kproxy-conformance-1"]
    assert production_signs(context, "https://127.0.0.1:6443", MAX_NODES, own) == []


def test_many_nodes_and_the_pods_of_others_are_left_alone() -> None:
    found = production_signs(
        "lab", "https://api.prod.example", MAX_NODES + 1, ["shop", "default", "a", "b", "kube-system"]
    )
    assert found == [
        "the server is called https://api.prod.example",
        f"it has {MAX_NODES + 1} nodes",
        "foreign pods run in a, b, default and 1 more",
    ]


@pytest.mark.parametrize(
    ("namespaces", "hint"),
    [(["default"], "remove"), (["default", "kube-system"], "remove"), (["default", "shop"], ""), ([], "")],
)
def test_pods_in_default_alone_are_taken_for_somebodys_trials(namespaces: list[str], hint: str) -> None:
    reported = playground_hint(namespaces)
    assert hint in reported
    assert bool(reported) == bool(hint)
