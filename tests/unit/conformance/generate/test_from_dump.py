"""Cases of a cluster as kubectl printed it: which packets are sent, and what the oracle expects of each."""

from __future__ import annotations

from collections import Counter

import pytest

from kproxy.conformance.binding.bind import NODE_PORT_KINDS
from kproxy.conformance.case import TargetKind, Vantage, VantageKind, client, host, pod, remote
from kproxy.conformance.generate.from_dump import CopiedInstance, copied_instances
from kproxy.lab.topology import Topology
from kproxy.spec.oracle import expect
from kproxy.tools.compare.command import replica_node_facts
from kproxy.tools.explain.dump import Dump, parse_dump
from kproxy.tools.explain.explanation import ProxySettings
from kproxy.tools.lab_session.layout import replica_topology
from tests.support.dumps import dump as printed
from tests.support.paths import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "cluster.yaml"


@pytest.fixture(scope="module")
def example() -> Dump:
    return parse_dump([("example", EXAMPLE.read_bytes())])


@pytest.fixture(scope="module")
def large() -> Dump:
    return parse_dump([("large", printed(60))])


@pytest.fixture(scope="module")
def place(large: Dump) -> Topology:
    return replica_topology(large, together=True)


def instances(dump: Dump, topology: Topology) -> tuple[CopiedInstance, ...]:
    return copied_instances(dump.cluster, topology, replica_node_facts(dump, topology, ProxySettings()))


def test_every_frontend_is_queried_from_every_vantage_point(example: Dump) -> None:
    requested = instances(example, replica_topology(example, together=True))
    web = [one.probe for one in requested if one.service == ("default", "web")]
    for kind in (TargetKind.CLUSTER_IP, TargetKind.VIP):
        senders = Counter(probe.sender for probe in web if probe.to.kind is kind and not probe.to.undefined)
        nodes = [(host(node), client(node), remote(node), pod(f"{node}1")) for node in "ab"]
        endpoint = Vantage(VantageKind.POD, "a", "a-pods")
        assert senders == Counter([*nodes[0], *nodes[1], endpoint])
    node_ports = Counter(
        (probe.to.kind, probe.sender.kind) for probe in web if probe.to.kind in NODE_PORT_KINDS
    )
    assert node_ports[TargetKind.NODE_PORT, VantageKind.POD] == 4, "a pod of each node sends to both nodes"
    assert node_ports[TargetKind.NODE_PORT_LOCALHOST, VantageKind.HOST] == 2
    dns = {
        one.bound.packet.protocol.value
        for one in requested
        if one.case.id == "kube-system/dns" and one.probe.to.kind is TargetKind.CLUSTER_IP
    }
    assert dns == {"TCP", "UDP"}


def test_a_client_of_a_source_range_is_in_that_range(large: Dump, place: Topology) -> None:
    routed = (one.bound.packet for one in instances(large, place) if one.probe.sender.name == "remote")
    own = {address for pair in place.remote_address.values() for address in pair.values()}
    guests = [packet.source for packet in routed if packet.source not in own]
    assert guests
    assert all(str(source).startswith(("203.0.113.", "2001:db8:aa:")) for source in guests)


def test_the_oracle_returns_for_the_services_queried_what_it_returns_for_all(
    large: Dump, place: Topology
) -> None:
    facts = replica_node_facts(large, place, ProxySettings())
    for one in copied_instances(large.cluster, place, facts)[::37]:
        found = expect(large.cluster, facts[one.bound.node], one.bound.packet)
        assert (one.lawful, one.probe.clauses) == (found.outcomes, found.clauses)
