"""Somebody's cluster as a lab: where everything is put, what is asked, what counts as a difference."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from ipaddress import ip_address
from typing import Any

import pytest

from kproxy.conformance.testbed import Observation
from kproxy.lab.topology import ELSEWHERE, REMOTE, Topology
from kproxy.lab.wiring import LabWiring
from kproxy.model.network import Family
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.oracle import expect
from kproxy.spec.outcome import Delivered, Expectation, Failure, SourceIP
from kproxy.tools.compare.differences import ProxyDifference, looks_different, proxy_difference
from kproxy.tools.compare.expectations import replica_oracle
from kproxy.tools.compare.known_differences import DOCUMENTED_DIFFERENCES, documented_difference
from kproxy.tools.explain.dump import Dump, parse_dump
from kproxy.tools.explain.explanation import ProxySettings, dump_node_facts
from kproxy.tools.lab_session.frontend_probes import ClientKind, ProbedAddressKind, frontend_probes
from kproxy.tools.lab_session.layout import BEYOND, PROBE_POD, CannotCopy, replica_topology
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


# ------------------------------------------------------------------------------ questions


def test_every_frontend_is_queried_from_every_vantage_point(example: Dump) -> None:
    requested = frontend_probes(example, replica_topology(example, together=True))
    web = Counter((q.frontend, q.sender.kind) for q in requested if q.name == "default/web")
    for front in (ProbedAddressKind.CLUSTER_IP, ProbedAddressKind.LOAD_BALANCER_IP):
        assert {who: web[front, who] for who in (ClientKind.POD, ClientKind.HOST, ClientKind.ON_LINK, ClientKind.ROUTED, ClientKind.ENDPOINT)} == {
            ClientKind.POD: 2, ClientKind.HOST: 2, ClientKind.ON_LINK: 2, ClientKind.ROUTED: 2, ClientKind.ENDPOINT: 1,
        }  # fmt: skip
    assert web[ProbedAddressKind.NODE_PORT, ClientKind.POD] == 4, "a pod of each node asks both nodes"
    assert web[ProbedAddressKind.NODE_PORT_LOCALHOST, ClientKind.HOST] == 2
    dns = {
        q.packet.protocol.value
        for q in requested
        if q.name == "kube-system/dns" and q.frontend is ProbedAddressKind.CLUSTER_IP
    }
    assert dns == {"TCP", "UDP"}


def test_a_client_of_a_source_range_is_in_that_range(large: Dump, place: Topology) -> None:
    guests = [q for q in frontend_probes(large, place) if q.sender.kind is ClientKind.GUEST]
    assert guests
    assert all(str(q.packet.source).startswith(("203.0.113.", "2001:db8:aa:")) for q in guests)


def test_the_oracle_says_of_the_services_queried_what_it_says_of_all(large: Dump, place: Topology) -> None:
    judge = replica_oracle(large, place, ProxySettings())
    for question in frontend_probes(large, place)[::37]:
        known = large.cluster.node(place.hostnames[question.judge])
        assert known is not None
        gateways = tuple(place.pod_gateway[question.judge].values())
        everything = dump_node_facts(known, ProxySettings(extra_addresses=gateways))
        assert judge.expect(question) == expect(large.cluster, everything, question.packet)


# ------------------------------------------------------------------------------ differences

ONE, OTHER = (ip_address("10.244.1.1"), 80), (ip_address("10.244.2.1"), 80)


def seen(outcome: Any) -> Observation:  # noqa: ANN401
    endpoint = (outcome.address, outcome.port) if isinstance(outcome, Delivered) else None
    return Observation(frozenset({outcome}), str(outcome), endpoint)


def delivered(at: Any, source: SourceIP = SourceIP.PRESERVED) -> Delivered:  # noqa: ANN401
    address, port = at
    return Delivered(address, port, source)


def held(one: Any, other: Any, *lawful: Any, clauses: tuple[Any, ...] = ()) -> ProxyDifference | None:  # noqa: ANN401
    question: Any = dataclasses.make_dataclass("Probed", ["frontend"])(
        ProbedAddressKind.NODE_PORT_OTHER_ADDRESS
    )
    return proxy_difference(question, Expectation(frozenset(lawful), clauses), [seen(one)], [seen(other)])


def test_which_endpoint_answers_is_chance() -> None:
    assert held(delivered(ONE), delivered(OTHER), delivered(ONE), delivered(OTHER)) is None


def test_another_source_at_the_same_endpoint_is_a_difference() -> None:
    kept, changed = delivered(ONE), delivered(ONE, SourceIP.MASQUERADED)
    found = held(kept, changed, kept)
    assert found is not None
    assert found.unlawful == (False, True)


def test_sources_of_different_endpoints_are_worth_asking_again_and_no_difference() -> None:
    kept, changed = delivered(ONE), delivered(OTHER, SourceIP.MASQUERADED)
    expectation = Expectation(frozenset({kept, changed}), ())
    assert looks_different([seen(kept)], [seen(changed)], expectation)
    assert held(kept, changed, kept, changed) is None


def test_a_source_that_can_be_read_either_way_is_no_difference() -> None:
    either = Observation(frozenset({delivered(ONE), delivered(ONE, SourceIP.MASQUERADED)}), "", ONE)
    changed = seen(delivered(ONE, SourceIP.MASQUERADED))
    question: Any = None
    expectation = Expectation(changed.outcomes, ())
    assert proxy_difference(question, expectation, [either], [changed]) is None


def test_what_is_unlawful_is_not_intended_though_its_kind_is_documented() -> None:
    stray = delivered(OTHER)
    found = held(stray, Failure.UNTOUCHED, delivered(ONE), Failure.UNTOUCHED, clauses=(OTHER_ADDRESSES,))
    assert found is not None
    assert documented_difference(found, ("iptables", "nftables")) is None
    lawful = held(
        delivered(ONE), Failure.UNTOUCHED, delivered(ONE), Failure.UNTOUCHED, clauses=(OTHER_ADDRESSES,)
    )
    assert lawful is not None
    assert documented_difference(lawful, ("iptables", "nftables")) is not None, "the control"


def test_an_endpoint_that_must_not_be_reached_is_a_difference_though_both_deliver() -> None:
    found = held(delivered(ONE), delivered(OTHER), delivered(ONE))
    assert found is not None
    assert found.unlawful == (False, True)


OTHER_ADDRESSES = "node-port.addresses.default-not-primary.either"
UNDEFINED = "cluster-ip.undefined-port.not-served"


@pytest.mark.parametrize(
    ("one", "other", "clauses", "modes", "known"),
    [
        (Failure.UNTOUCHED, Failure.REJECTED, (UNDEFINED,), ("iptables", "nftables"), True),
        (Failure.REJECTED, Failure.UNTOUCHED, (UNDEFINED,), ("nftables", "iptables"), True),
        (Failure.REJECTED, Failure.UNTOUCHED, (UNDEFINED,), ("iptables", "nftables"), False),
        (Failure.UNTOUCHED, Failure.DROPPED, (UNDEFINED,), ("iptables", "nftables"), False),
        (Failure.UNTOUCHED, Failure.REJECTED, (), ("iptables", "nftables"), False),
        (Failure.UNTOUCHED, Failure.REJECTED, (UNDEFINED,), ("iptables", "ebpf"), False),
    ],
)
def test_a_difference_is_intended_only_if_both_do_what_is_written_of_their_modes(
    one: Failure, other: Failure, clauses: tuple[Any, ...], modes: tuple[str, str], *, known: bool
) -> None:
    found = held(one, other, one, other, clauses=clauses)
    assert found is not None
    assert (documented_difference(found, modes) is not None) is known


@pytest.mark.parametrize("entry", DOCUMENTED_DIFFERENCES, ids=lambda entry: entry.id)
def test_a_documented_difference_names_clauses_that_exist_and_where_it_is_written(entry: Any) -> None:  # noqa: ANN401
    assert entry.clauses <= set(CLAUSES)
    assert entry.links
    assert all(link.startswith("https://") for link in entry.links)


def test_documented_differences_have_names_of_their_own() -> None:
    names = [entry.id for entry in DOCUMENTED_DIFFERENCES]
    assert len(names) == len(set(names))
