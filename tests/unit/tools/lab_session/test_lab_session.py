"""Somebody's cluster as a lab: where everything is put."""

from __future__ import annotations

import json
from collections import Counter
from ipaddress import ip_address

import pytest

from kproxy.conformance.generate.from_dump import PROBE_POD
from kproxy.lab.topology import ELSEWHERE, REMOTE, Topology
from kproxy.lab.wiring import LabWiring
from kproxy.model.network import Family
from kproxy.tools.explain.dump import Dump, parse_dump
from kproxy.tools.lab_session.layout import BEYOND, CannotCopy, replica_topology
from tests.support.dumps import dump as printed
from tests.support.paths import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "cluster.yaml"
V4 = Family.IPV4


@pytest.fixture(scope="module")
def example() -> Dump:
    return parse_dump([("example", EXAMPLE.read_bytes())])


@pytest.fixture(scope="module")
def large() -> Dump:
    return parse_dump([("large", printed(60))])


@pytest.fixture(scope="module")
def place(large: Dump) -> Topology:
    return replica_topology(large, together=True)


# ------------------------------------------------------------------------------ layout


def test_nodes_are_those_with_the_most_endpoints_unless_they_are_named(large: Dump) -> None:
    counts = Counter(e.node_name for piece in large.cluster.slices.values() for e in piece.endpoints or [])
    assert replica_topology(large, together=True).hostnames["a"] == counts.most_common(1)[0][0]
    named = replica_topology(large, ["worker-3", "worker-0"], together=True)
    assert list(named.hostnames.values()) == ["worker-3", "worker-0"]


def test_the_second_node_is_of_another_zone(large: Dump) -> None:
    zones = [
        found.metadata.labels["topology.kubernetes.io/zone"]
        for hostname in replica_topology(large, together=True).hostnames.values()
        if (found := large.cluster.node(hostname))
    ]
    assert zones[0] != zones[1]


def test_a_node_that_is_not_there_is_named_with_those_that_are(example: Dump) -> None:
    with pytest.raises(CannotCopy, match=r"node-x.*node-a, node-b"):
        replica_topology(example, ["node-x"], together=True)
    with pytest.raises(CannotCopy, match="2 nodes"):
        replica_topology(example, ["node-a", "node-b", "node-c"], together=True)


def test_every_endpoint_has_a_home_and_keeps_its_address(large: Dump, place: Topology) -> None:
    lab = {hostname: node for node, hostname in place.hostnames.items()}
    for piece in large.cluster.slices.values():
        for endpoint in piece.endpoints or []:
            address = ip_address((endpoint.addresses or [""])[0])
            home = place.namespace_of(address)
            if endpoint.node_name in lab:
                assert home == lab[endpoint.node_name] or home in place.pods[lab[endpoint.node_name]]
            else:
                assert home == BEYOND


def test_nothing_that_the_lab_adds_has_an_address_of_the_cluster(large: Dump, place: Topology) -> None:
    pairs = [place.router_address, *place.client_address.values(), *place.pod_gateway.values()]
    pairs += [place.pod_address[pod] for pod in PROBE_POD.values()]
    added = [address for pair in pairs for address in pair.values()]
    added += [address for name in (REMOTE, ELSEWHERE) for address in place.stubs[name].addresses]
    added += [*place.stubs[BEYOND].addresses[: len(place.families)]]
    added += [address for family in place.sentinel_addresses.values() for address in family]
    assert len(added) == len(set(added))
    text = json.dumps(large.documents)
    assert not [address for address in added if f'"{address}"' in text]


def test_one_pod_has_one_namespace_where_programs_are_to_run_in_it(example: Dump) -> None:
    pods = replica_topology(example, together=False).pods
    assert pods == {"a": ("pod/default/web-0", "pod/default/web-1", "a1"), "b": ("b1",)}


def test_a_shared_namespace_sends_what_is_for_its_own_pods_through_the_node(example: Dump) -> None:
    wires = LabWiring(replica_topology(example, together=True))
    assert "rule add pref 2 iif lo lookup 100" in wires.addressing("a-pods", V4)
    assert "rule" not in wires.addressing("b-pods", V4)
