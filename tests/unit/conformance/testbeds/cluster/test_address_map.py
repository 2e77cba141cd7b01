"""The lab's addresses for a cluster's, and back: one to one, whatever the cluster uses the lab's addresses for."""

from dataclasses import replace
from ipaddress import IPv4Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.conformance.binding.bind import bind_cases
from kproxy.conformance.case import Apply, Probe, case, delivered_to, pod, service
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.subjects.configuration import HEALTHZ_PORT
from kproxy.conformance.testbeds.cluster.address_map import OUTSIDE, AddressesExhausted, build_address_map
from kproxy.conformance.testbeds.cluster.cluster_topology import lowest_addresses
from kproxy.conformance.testbeds.cluster.limits import ClusterShape, case_not_runnable
from kproxy.conformance.testbeds.cluster.permutation import Permutation
from kproxy.conformance.testbeds.interpret import interpret_step
from kproxy.conformance.testbeds.sentinel import Sentinel
from kproxy.lab.probes.observation import (
    Answered,
    Direction,
    Evidence,
    Icmp,
    ProbeRequest,
    Reception,
    Refused,
    Sighting,
    Silent,
    Socket,
)
from kproxy.lab.topology import LAB, NODES
from kproxy.model.network import Family
from kproxy.spec.outcome import Delivered, SourceIP
from tests.support.scripted_cluster import PLACE, V4, V6, pair

RUNNABLE = bind_cases([c for c in CATALOGUE if case_not_runnable(c, ClusterShape(neighbour=True)) is None])
LENS = build_address_map(PLACE, RUNNABLE)
ADDRESSES = st.one_of(
    st.ip_addresses(v=4),
    st.ip_addresses(v=6),
    st.sampled_from(sorted(PLACE.taken_addresses, key=int)),
    st.sampled_from([a[f] for a in LAB.pod_address.values() for f in Family]),
    st.sampled_from([a[f] for a in PLACE.pods.values() for f in Family]),
    st.sampled_from([LAB.service_cidr[V4][n] for n in range(500, 3000)]),
)
SOCKETS = st.builds(Socket, ADDRESSES, st.integers(0, 65535))


@given(st.dictionaries(st.integers(0, 30), st.integers(0, 30)), st.integers(-5, 40))
def test_a_permutation_can_be_undone_for_everything(pairs: dict[int, int], other: int) -> None:
    unique = {old: new for new, old in {new: old for old, new in pairs.items()}.items()}
    made = Permutation(unique)
    assert all(made.apply(old) == new for old, new in unique.items())
    for value in {other, *unique, *unique.values()}:
        assert made.invert(made.apply(value)) == value
        assert made.apply(made.invert(value)) == value


def test_two_things_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        Permutation({1: 3, 2: 3})


@given(ADDRESSES, st.integers(0, 65535))
def test_what_goes_outward_comes_back(address: IPv4Address, port: int) -> None:
    requested = LENS.request(ProbeRequest(sender="a1", destination=address, port=port, source=address))
    assert requested.source is not None
    assert LENS.addresses.invert(requested.destination) == address == LENS.addresses.invert(requested.source)
    assert LENS.ports.invert(requested.port) == port


@given(SOCKETS, SOCKETS, SOCKETS)
def test_sockets_that_are_the_same_stay_the_same_and_others_others(
    at: Socket, peer: Socket, own: Socket
) -> None:
    """What a verdict compares, but for a node's further addresses, which are all one."""
    seen = LENS.observation(Answered(who="a1", at=at, peer=peer, own=own))
    assert isinstance(seen, Answered)
    known = not {at.address, peer.address, own.address} & set(LENS.gateways)
    for one, other, new, new_other in ((at, peer, seen.at, seen.peer), (peer, own, seen.peer, seen.own)):
        assert (one == other) == (new == new_other) or not known


def test_every_place_of_the_lab_is_somewhere_in_the_cluster() -> None:
    there = LENS.addresses.apply
    for family in Family:
        for name, node in PLACE.nodes.items():
            assert there(LAB.node_address[name][family]) == node.addresses[family]
        for name, addresses in PLACE.pods.items():
            assert there(LAB.pod_address[name][family]) == addresses[family]


def test_a_strangers_address_that_is_a_pods_of_the_lab_is_not_taken_for_it() -> None:
    for pods in LAB.pod_address.values():
        if pods[V4] not in {own[V4] for own in PLACE.pods.values()}:
            assert LENS.address(pods[V4]) not in {other[V4] for other in LAB.pod_address.values()}


def test_cluster_ips_are_in_the_clusters_range_and_nobody_has_them() -> None:
    for family in Family:
        for number in range(256):
            given_ = LENS.addresses.apply(Sentinel(number).cluster_ip(family))
            assert given_ in PLACE.service_cidrs[family]
            assert given_ not in PLACE.taken_addresses


def test_node_ports_are_in_the_clusters_range_and_nobody_has_them() -> None:
    ports = {
        LENS.ports.apply(number)
        for instance in RUNNABLE
        for service in instance.services
        for port in service.ports
        if (number := instance.node_port(service, port))
    }
    assert len(ports) > 50
    assert min(ports) >= 30000
    assert max(ports) <= 32767
    assert not ports & PLACE.taken_ports


def test_the_port_at_which_proxies_report_their_health_is_itself() -> None:
    assert any(LENS.ports.apply(number) != number for number in range(HEALTHZ_PORT, HEALTHZ_PORT + 9))
    assert LENS.ports.apply(HEALTHZ_PORT) == HEALTHZ_PORT


def test_further_addresses_of_a_node_are_its_gateway() -> None:
    for address in PLACE.nodes["a"].others:
        assert LENS.address(address) == LAB.pod_gateway["a"][V4]


def test_the_client_outside_sends_from_the_address_it_has() -> None:
    own = LAB.client_address["b"][V6]
    requested = ProbeRequest(sender="client", destination=LAB.node_address["b"][V6], port=30000, source=own)
    assert LENS.request(requested).source is None
    assert PLACE.neighbour is not None
    assert LENS.address(PLACE.neighbour[V6]) == LAB.client_address["a"][V6]


WITH_CLIENTS = replace(
    PLACE,
    neighbour=None,
    outside={
        "client": {"a": pair("192.168.7.20", "fd07::20"), "b": pair("192.168.7.21", "fd07::21")},
        "remote": {"a": pair("192.168.7.30", "fd07::30"), "b": pair("192.168.7.31", "fd07::31")},
    },
)


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("who", OUTSIDE)
def test_clients_outside_choose_their_node_by_the_address_they_send_from(
    who: str, node: str, family: Family
) -> None:
    lens = build_address_map(WITH_CLIENTS, RUNNABLE)
    own = OUTSIDE[who][node][family]
    requested = ProbeRequest(sender=who, destination=LAB.node_address["b"][family], port=80, source=own)
    assert lens.request(requested).source == WITH_CLIENTS.outside[who][node][family]
    assert lens.address(WITH_CLIENTS.outside[who][node][family]) == own


def test_the_two_lowest_addresses_of_each_family_are_for_the_two_nodes() -> None:
    texts = ("fe80::1", "10.0.0.9", "10.0.0.3", "10.0.0.5", "fd00::2", "fd00::1", "10.0.0.3")
    found = lowest_addresses([ip_address(text) for text in texts])
    assert found == {"a": pair("10.0.0.3", "fd00::1"), "b": pair("10.0.0.5", "fd00::2")}
    with pytest.raises(ValueError, match="shorter"):
        lowest_addresses([ip_address("10.0.0.3")])


def test_all_parts_of_an_observation_are_seen_through_it() -> None:
    here, there = LAB.pod_address["a1"][V4], PLACE.pods["a1"][V4]
    inside, outside = Socket(here, 4000), Socket(there, 4000)
    refused = Refused(Icmp(V4, 3, 3), there, outside)
    assert LENS.observation(refused) == replace(refused, by=here, about=inside)
    sighting = Sighting("a", "eth0", Direction.OUT, outside, outside)
    silent = Silent(evidence=Evidence((sighting,), (Reception("a1", outside, outside),), 3))
    seen = LENS.observation(silent)
    assert seen == Silent(
        evidence=Evidence(
            (replace(sighting, source=inside, destination=inside),), (Reception("a1", inside, inside),), 3
        )
    )


def test_too_small_a_range_of_cluster_ips_is_reported() -> None:
    small = replace(PLACE, service_cidrs={V4: ip_network("10.96.0.0/24")})
    with pytest.raises(AddressesExhausted, match=r"10\.96\.0\.0/24 has 239 addresses left, \d+ are needed"):
        build_address_map(small, RUNNABLE)


def test_too_few_node_ports_are_reported() -> None:
    with pytest.raises(AddressesExhausted, match="of the node ports 30000 to 30005 there are 4 left"):
        build_address_map(replace(PLACE, node_ports=(30000, 30005)), RUNNABLE)


def test_a_single_stack_cluster_needs_addresses_of_its_family_only() -> None:
    single = replace(PLACE, service_cidrs={V4: PLACE.service_cidrs[V4]})
    lens = build_address_map(single, [one for one in RUNNABLE if one.family is V4])
    assert lens.addresses.apply(LAB.pod_address["a1"][V6]) == LAB.pod_address["a1"][V6]


@pytest.mark.parametrize(
    ("saw", "source"),
    [
        (PLACE.pods["a2"][V4], SourceIP.PRESERVED),
        (PLACE.nodes["a"].addresses[V4], SourceIP.MASQUERADED),
        (ip_address("10.244.1.1"), SourceIP.MASQUERADED),  # another address of that node
    ],
)
def test_an_answer_in_a_cluster_reads_as_one_in_the_lab(saw: IPv4Address, source: SourceIP) -> None:
    web = service("web", "b1")
    (instance, _) = bind_cases([case("group.name", "It reads.", Apply(web), clauses=set())])
    own = Socket(PLACE.pods["a2"][V4], 4000)
    met = Answered(who="b1", at=Socket(PLACE.pods["b1"][V4], 20000), peer=Socket(saw, 4000), own=own)
    probe = Probe(sender=pod("a2"), to=web.cluster_ip, expect=delivered_to("b1"))
    seen = interpret_step(LENS.observation(met), instance, probe)
    assert seen.outcomes == {Delivered(LAB.pod_address["b1"][V4], 10000, source)}
