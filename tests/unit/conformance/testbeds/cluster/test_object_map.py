"""Objects of cases, as a cluster may hold them."""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from kproxy.conformance.binding.bind import Instance, bind_cases
from kproxy.conformance.binding.kubernetes_objects import kubernetes_objects
from kproxy.conformance.binding.world import document_key
from kproxy.conformance.case import (
    Apply,
    CaseEndpoint,
    Policy,
    Probe,
    SourceRange,
    Type,
    Vip,
    case,
    delivered_to,
    pod,
    service,
)
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.testbeds.cluster.address_map import build_address_map
from kproxy.conformance.testbeds.cluster.limits import ClusterShape, case_not_runnable
from kproxy.conformance.testbeds.cluster.object_map import ObjectMap, mapped_name
from kproxy.conformance.testbeds.sentinel import Sentinel
from kproxy.lab.topology import LAB
from kproxy.model.network import Family
from tests.support.scripted_cluster import PLACE, V4, V6, pair

WEB = service(
    "web",
    type=Type.LOAD_BALANCER,
    external_policy=Policy.LOCAL,
    external_ips=1,
    vips=(Vip(), Vip(hostname_only=True)),
    source_ranges=(SourceRange.CLUSTER_CIDR, SourceRange.NODE_NETWORK, SourceRange.EVERYWHERE, "b1"),
    endpoints=(
        CaseEndpoint(on="a1", zones=("zone-a",), nodes=("b",)),
        CaseEndpoint(on="b", listed_node="nobody"),
    ),
)
IN_V4, IN_V6 = bind_cases(
    [
        case(
            "group.name",
            "It is seen.",
            Apply(WEB),
            Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1")),
            clauses=set(),
        )
    ]
)
LENS = build_address_map(PLACE, (IN_V4, IN_V6))
OUTWARD = ObjectMap(LENS)


def put(instance: Instance) -> tuple[dict[str, Any], dict[str, Any]]:
    made, slice_ = (OUTWARD.document(document) for document in kubernetes_objects(instance, WEB))
    return made, slice_


def test_a_service_has_addresses_and_ports_that_the_cluster_can_give() -> None:
    made, _ = put(IN_V6)
    spec = made["spec"]
    assert spec["clusterIP"] == spec["clusterIPs"][0] == str(LENS.addresses.apply(IN_V6.cluster_ip(WEB)))
    assert ip_address(spec["clusterIP"]) in PLACE.service_cidrs[V6]
    assert ip_address(spec["externalIPs"][0]) in ip_network("2001:2::/48")
    assert spec["ports"][0]["nodePort"] in range(30000, 32768)
    target = LENS.ports.apply(IN_V6.target_port(WEB, WEB.ports[0]))
    assert spec["ports"][0]["targetPort"] == target
    assert target in range(20000, 30000), "10250 is a kubelet's"
    assert spec["healthCheckNodePort"] in range(30000, 32768)
    ingress = made["status"]["loadBalancer"]["ingress"]
    assert ip_address(ingress[0]["ip"]) in ip_network("2001:2::/48")
    assert ingress[1] == {"hostname": "lb-1.example.com"}


def test_nobodys_controller_acts_for_a_load_balancer() -> None:
    assert put(IN_V4)[0]["spec"]["loadBalancerClass"] == PLACE.load_balancer_class


def test_source_ranges_of_the_lab_become_who_is_there() -> None:
    ranges = put(IN_V4)[0]["spec"]["loadBalancerSourceRanges"]
    pods = {str(ip_network(addresses[V4])) for addresses in PLACE.pods.values()}
    nodes = {f"192.168.7.{number}/32" for number in (5, 6, 7)}
    assert set(ranges) == pods | nodes | {"0.0.0.0/0"}


def test_source_ranges_keep_their_blanks_and_know_clients_outside() -> None:
    outside = {"remote": {"a": pair("192.168.7.30", "fd07::30"), "b": pair("192.168.7.31", "fd07::31")}}
    outward = ObjectMap(build_address_map(replace(PLACE, outside=outside), (IN_V4, IN_V6)))
    ranged = WEB.replace(
        source_ranges=(SourceRange.REMOTE_NETWORK,), literal_source_ranges=(" 172.18.0.0/24 ", "nonsense")
    )
    spec = outward.document(kubernetes_objects(IN_V4, ranged)[0])["spec"]
    nodes = [f" 192.168.7.{number}/32 " for number in (5, 6, 7)]
    assert spec["loadBalancerSourceRanges"] == [*nodes, "nonsense", "192.168.7.30/32", "192.168.7.31/32"]


def test_an_endpoint_is_on_the_clusters_nodes_and_in_its_zones() -> None:
    _, slice_ = put(IN_V4)
    first, second = slice_["endpoints"]
    assert first["addresses"] == [str(PLACE.pods["a1"][V4])]
    assert first["nodeName"] == "worker-1"
    assert first["hints"] == {"forZones": [{"name": "east"}], "forNodes": [{"name": "worker-2"}]}
    assert second["addresses"] == ["192.168.7.6"]
    assert second["nodeName"] == "nobody"


def test_a_slice_is_its_services_and_no_controllers() -> None:
    made, slice_ = put(IN_V4)
    assert slice_["ports"][0]["port"] == made["spec"]["ports"][0]["targetPort"]
    labels = slice_["metadata"]["labels"]
    assert labels["kubernetes.io/service-name"] == made["metadata"]["name"]
    assert labels["endpointslice.kubernetes.io/managed-by"] == "kproxy-conformance"


def test_objects_of_two_cases_do_not_meet() -> None:
    names = [put(instance)[0]["metadata"] for instance in (IN_V4, IN_V6)]
    assert names[0]["name"] != names[1]["name"]
    assert {meta["namespace"] for meta in names} == {PLACE.namespace}
    assert OUTWARD.key(("Service", IN_V4.namespace, "web"))[1:] == (PLACE.namespace, names[0]["name"])


def test_names_are_labels_and_all_cases_have_their_own() -> None:
    spaces = {instance.namespace for instance in bind_cases(CATALOGUE)}
    assert len({mapped_name(space, "web") for space in spaces}) == len(spaces)
    assert all(len(mapped_name(space, "sentinel-100000-ipv6")) <= 63 for space in spaces)


def of_all() -> Iterator[tuple[Instance, Any, Any]]:
    able = bind_cases(
        [one for one in CATALOGUE if case_not_runnable(one, ClusterShape(neighbour=True)) is None]
    )
    outward = ObjectMap(build_address_map(PLACE, able))
    for instance in able:
        for declared in instance.services:
            for document in kubernetes_objects(instance, declared):
                yield instance, document, outward.document(document)


def texts(value: object) -> Iterator[str]:
    match value:
        case dict():
            for item in value.values():
                yield from texts(item)
        case list():
            for item in value:
                yield from texts(item)
        case str():
            yield value
        case _:
            return


OF_THE_LAB = [
    *(ranges[family] for family in Family for ranges in (LAB.external_ip_range, LAB.load_balancer_range)),
    *(LAB.node_network[family] for family in Family),
    *(LAB.cluster_cidr[V6], LAB.service_cidr[V6]),
]
"""Ranges of the lab that this cluster has nothing in."""


def leaked(text: str) -> bool:
    try:
        network = ip_network(text.strip())
    except ValueError:
        return False
    return any(network.version == own.version and network.subnet_of(own) for own in OF_THE_LAB)  # type: ignore[arg-type]


def test_no_address_of_the_lab_is_left_in_any_object_of_the_catalogue() -> None:
    found = {
        (instance.name, text)
        for instance, _, outward in of_all()
        for text in texts({**outward, "metadata": {}})
        if leaked(text)
    }
    assert found == set()


@pytest.mark.parametrize("family", Family)
def test_a_sentinel_goes_outward_like_any_service(family: Family) -> None:
    sentinel = Sentinel(3)
    made = [OUTWARD.document(document) for document in sentinel.documents]
    index = list(Family).index(family)
    assert made[0]["spec"]["clusterIPs"][index] == str(LENS.addresses.apply(sentinel.cluster_ip(family)))
    assert made[1 + index]["endpoints"][0]["addresses"] == [str(PLACE.pods["a3"][family])]
    assert [document_key(document) for document in made] == [OUTWARD.key(key) for key in sentinel.keys]
