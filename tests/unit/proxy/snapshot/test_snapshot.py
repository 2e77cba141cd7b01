"""Snapshots: which Services there are, what their fields mean, how endpoints are merged, and that memory changes nothing."""

from ipaddress import ip_address, ip_network
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.model import api
from kproxy.model.api import Cluster
from kproxy.model.network import Family, Protocol
from kproxy.proxy.snapshot import EndpointInfo, ServiceInfo, Snapshot, TrafficPolicy, changed_keys, normalise
from tests.support.objects import cluster, endpoint, service, slice_of
from tests.support.strategies import clusters, histories

WEB = ("test", "web")
V4, V6 = Family.IPV4, Family.IPV6
families = st.sampled_from(Family)


def web(*objects: api.Service | api.EndpointSlice, family: Family = V4) -> ServiceInfo:
    return normalise(cluster(*objects), family).services[WEB]


def endpoints_of(
    *slices: api.EndpointSlice, ports: tuple[api.ServicePort, ...] = ()
) -> tuple[EndpointInfo, ...]:
    """What the Service ``web`` (by default with one port ``http``) has behind its first port."""
    return web(service(ports=ports) if ports else service(), *slices).ports[0].endpoints


def places(endpoints: tuple[EndpointInfo, ...]) -> list[str]:
    return [f"{e.address}:{e.port}" for e in endpoints]


# ---------------------------------------------------------------- which Services


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(service(cluster_ips=["None"], external_ips=["203.0.113.1"]), id="obj.headless"),
        pytest.param(service(cluster_ips=[]), id="obj.no-cip"),
        pytest.param(service(type="ExternalName"), id="obj.externalname"),
        pytest.param(service(labels={api.PROXY_NAME_LABEL: "other"}), id="obj.service-proxy-name"),
        pytest.param(service(labels={api.PROXY_NAME_LABEL: ""}), id="obj.service-proxy-name, empty"),
        pytest.param(service(cluster_ips=["fd00::1"]), id="ds.single-on-dual"),
        pytest.param(service(cluster_ips=["10.0.0.256"]), id="not an address"),
    ],
)
def test_a_service_that_is_not_ours_is_absent_and_its_neighbour_is_not(item: api.Service) -> None:
    neighbour = service("neighbour", ["10.96.0.2"])
    assert list(normalise(cluster(item, neighbour), V4).services) == [("test", "neighbour")]


@pytest.mark.parametrize("addresses", [["10.96.0.1", "fd00::1"], ["fd00::1", "10.96.0.1"]])
def test_each_family_has_its_own_cluster_ip_in_either_order(addresses: list[str]) -> None:
    assert web(service(cluster_ips=addresses), family=V4).cluster_ip == ip_address("10.96.0.1")
    assert web(service(cluster_ips=addresses), family=V6).cluster_ip == ip_address("fd00::1")


@pytest.mark.parametrize(("text", "family"), [("10.96.0.7", V4), ("fd00::7", V6)])
def test_the_singular_cluster_ip_field_is_enough(text: str, family: Family) -> None:
    item = api.Service(api.Metadata("web", "test"), api.ServiceSpec(cluster_ip=text))
    assert web(item, family=family).cluster_ip == ip_address(text)


# ---------------------------------------------------------------- fields


def test_external_ips_of_the_family_are_kept_and_bad_ones_are_reported() -> None:
    item = service(external_ips=["nonsense", "203.0.113.1", "fd00::5", "010.0.0.1", "203.0.113.1"])
    snapshot = normalise(cluster(item), V4)
    assert snapshot.services[WEB].external_ips == (ip_address("203.0.113.1"), ip_address("10.0.0.1"))
    assert [(note.subject, "'nonsense'" in note.text) for note in snapshot.notes] == [
        ("Service test/web", True)
    ]


def test_only_virtual_ip_ingress_is_captured() -> None:
    item = service(
        ingress=[
            api.LoadBalancerIngress(ip="203.0.113.1"),
            api.LoadBalancerIngress(ip="203.0.113.2", ip_mode="VIP"),
            api.LoadBalancerIngress(ip="203.0.113.3", ip_mode="Proxy"),
            api.LoadBalancerIngress(hostname="lb.example"),
        ]
    )
    assert web(item).load_balancer_ips == (ip_address("203.0.113.1"), ip_address("203.0.113.2"))


@pytest.mark.parametrize(
    ("texts", "ranges"),
    [
        pytest.param([" 10.0.0.0/8 "], ["10.0.0.0/8"], id="lb.lbsr.whitespace"),
        pytest.param(["10.0.0.0/8", "0.0.0.0/0"], None, id="lb.lbsr.zero-cidr"),
        pytest.param(["10.0.0.0/8", "::/0"], ["10.0.0.0/8"], id="a /0 of the other family"),
        pytest.param(["fd00::/64"], None, id="lb.lbsr.per-family"),
        pytest.param(["0.0.0.0/1", "128.0.0.0/1"], ["0.0.0.0/1", "128.0.0.0/1"], id="lb.lbsr.split-halves"),
        pytest.param(["x", "10.0.0.0/8"], ["10.0.0.0/8"], id="one is not a CIDR"),
        pytest.param([], None, id="none"),
    ],
)
def test_source_ranges_are_those_of_the_family(texts: list[str], ranges: list[str] | None) -> None:
    expected = None if ranges is None else tuple(ip_network(text) for text in ranges)
    assert web(service(load_balancer_source_ranges=texts)).source_ranges == expected


@pytest.mark.parametrize(
    ("text", "policy", "reported"),
    [
        ("Local", TrafficPolicy.LOCAL, False),
        ("Cluster", TrafficPolicy.CLUSTER, False),
        ("", TrafficPolicy.CLUSTER, False),
        ("Elsewhere", TrafficPolicy.CLUSTER, True),
    ],
)
def test_a_policy_is_local_only_when_it_is_set_so(text: str, policy: TrafficPolicy, reported: bool) -> None:  # noqa: FBT001
    snapshot = normalise(cluster(service(external_traffic_policy=text, internal_traffic_policy=text)), V4)
    assert snapshot.services[WEB].external_policy is snapshot.services[WEB].internal_policy is policy
    assert bool(snapshot.notes) is reported


@pytest.mark.parametrize(
    ("affinity", "timeout", "seconds"),
    [("None", 5, None), ("ClientIP", None, 10800), ("ClientIP", 5, 5), ("ClientIP", 0, 10800)],
)
def test_affinity_is_a_number_of_seconds_or_none(
    affinity: str, timeout: int | None, seconds: int | None
) -> None:
    config = api.SessionAffinityConfig(api.ClientIPConfig(timeout))
    item = service(session_affinity=affinity, session_affinity_config=config)
    assert web(item).affinity_seconds == seconds


def test_affinity_without_a_configuration_lasts_three_hours() -> None:
    assert web(service(session_affinity="ClientIP")).affinity_seconds == 3 * 60 * 60


@pytest.mark.parametrize(
    ("kind", "policy", "port"),
    [("LoadBalancer", "Local", 32000), ("LoadBalancer", "Cluster", None), ("NodePort", "Local", None)],
)
def test_a_health_check_port_is_due_for_local_load_balancers_only(
    kind: str, policy: str, port: int | None
) -> None:
    item = service(type=kind, external_traffic_policy=policy, health_check_node_port=32000)
    assert web(item).health_check_port == port


def test_invalid_ports_are_reported_and_the_others_stay() -> None:
    bad = [
        api.ServicePort("zero", port=0),
        api.ServicePort("icmp", "ICMP", 80),
        api.ServicePort("large", port=80, node_port=65536),
        api.ServicePort("good", port=81),
    ]
    snapshot = normalise(cluster(service(ports=[*bad, api.ServicePort("good", "UDP", 81, 30000)])), V4)
    ports = snapshot.services[WEB].ports
    assert [(p.name.port, p.protocol, p.port, p.node_port) for p in ports] == [
        ("good", Protocol.TCP, 81, None),
        ("good", Protocol.UDP, 81, 30000),
    ]
    assert len({p.name for p in ports}) == 2, (
        "rules are kept by it: one of two equal names would lose its own"
    )
    assert len(snapshot.notes) == 3


# ---------------------------------------------------------------- endpoints


def test_endpoints_are_merged_over_slices_each_once_and_sorted_as_numbers() -> None:
    first = slice_of(endpoint("10.0.0.10"), endpoint("10.0.0.9"), name="one")
    second = slice_of(endpoint("10.0.0.9"), endpoint("010.0.0.2"), name="two")
    assert places(endpoints_of(first, second)) == ["10.0.0.2:8080", "10.0.0.9:8080", "10.0.0.10:8080"]


def test_missing_conditions_mean_ready_serving_and_not_terminating() -> None:
    bare = api.Endpoint(addresses=["10.0.0.1"])
    (found,) = endpoints_of(slice_of(bare))
    assert (found.ready, found.serving, found.terminating, found.node) == (True, True, False, None)
    assert endpoints_of(slice_of(endpoint("10.0.0.1"))) == (found,)


def test_only_the_first_address_of_an_endpoint_counts() -> None:
    several = api.Endpoint(addresses=["10.0.0.1", "10.0.0.2"])
    assert places(endpoints_of(slice_of(several, api.Endpoint(addresses=[]), api.Endpoint()))) == [
        "10.0.0.1:8080"
    ]


@pytest.mark.parametrize(
    "port",
    [
        api.EndpointPort(None, "TCP", 8080),
        api.EndpointPort("http", "TCP", None),
        api.EndpointPort("http", "TCP", 0),
        api.EndpointPort("http", "TCP", 65536),
        api.EndpointPort("http", "UDP", 8080),
        api.EndpointPort("other", "TCP", 8080),
    ],
)
def test_a_slice_port_without_the_name_protocol_and_a_number_gives_no_endpoint(
    port: api.EndpointPort,
) -> None:
    good = slice_of(endpoint("10.0.0.2"), name="good")
    assert places(endpoints_of(slice_of(endpoint("10.0.0.1"), ports=[port]), good)) == ["10.0.0.2:8080"]


def test_a_named_target_port_may_be_another_number_in_another_slice() -> None:
    first = slice_of(endpoint("10.0.0.1"), name="one", ports=[api.EndpointPort("http", None, 9090)])
    second = slice_of(endpoint("10.0.0.2"), name="two")
    assert places(endpoints_of(first, second)) == ["10.0.0.1:9090", "10.0.0.2:8080"]


@pytest.mark.parametrize(
    "hidden",
    [
        pytest.param(slice_of(endpoint("10.0.0.1"), service=None), id="obj.slice-label"),
        pytest.param(slice_of(endpoint("10.0.0.1"), service="other"), id="another Service"),
        pytest.param(slice_of(endpoint("10.0.0.1"), namespace="else"), id="another namespace"),
        pytest.param(
            slice_of(endpoint("10.0.0.1"), labels={api.HEADLESS_LABEL: ""}), id="obj.headless-label"
        ),
        pytest.param(slice_of(endpoint("10.0.0.1"), address_type="FQDN"), id="ds.slice-type"),
        pytest.param(slice_of(endpoint("10.0.0.1"), address_type="IPv6"), id="address of another type"),
        pytest.param(slice_of(endpoint("fd00::1"), address_type="IPv6"), id="ds.no-cross-family"),
        pytest.param(slice_of(endpoint("fd00::1")), id="IPv6 in an IPv4 slice"),
    ],
)
def test_a_slice_that_is_not_the_services_gives_no_endpoint(hidden: api.EndpointSlice) -> None:
    visible = slice_of(endpoint("10.0.0.2"), name="visible")
    assert places(endpoints_of(hidden, visible)) == ["10.0.0.2:8080"]


def test_each_protocol_of_a_port_number_has_its_own_endpoints() -> None:
    ports = [api.ServicePort(name, name.upper(), 53) for name in ("tcp", "udp", "sctp")]
    slices = [
        slice_of(endpoint(f"10.0.0.{n}"), name=p, ports=[api.EndpointPort(p, p.upper(), 53)])
        for n, p in enumerate(("tcp", "udp", "sctp"))
    ]
    found = web(service(ports=ports), *slices).ports
    assert [(p.protocol, places(p.endpoints)) for p in found] == [
        (Protocol.TCP, ["10.0.0.0:53"]),
        (Protocol.UDP, ["10.0.0.1:53"]),
        (Protocol.SCTP, ["10.0.0.2:53"]),
    ]


@pytest.mark.parametrize("live_is_ready", [True, False])
def test_a_live_pod_wins_over_a_terminating_one_with_its_address_in_any_order(live_is_ready: bool) -> None:  # noqa: FBT001
    old = endpoint("10.0.0.1", "node-2", ready=True, serving=True, terminating=True)
    new = endpoint("10.0.0.1", "node-1", ready=live_is_ready, serving=live_is_ready)
    for first, second in permutations((old, new)):
        (found,) = endpoints_of(slice_of(first, name="one"), slice_of(second, name="two"))
        assert (found.node, found.ready, found.terminating) == ("node-1", live_is_ready, False)


# ---------------------------------------------------------------- properties


def reordered(item: Cluster) -> Cluster:
    """The same cluster, everything listed backwards."""
    slices = {
        key: api.EndpointSlice(s.metadata, s.address_type, (s.endpoints or [])[::-1], (s.ports or [])[::-1])
        for key, s in reversed(list(item.slices.items()))
    }
    return Cluster(services=dict(reversed(list(item.services.items()))), slices=slices)


@given(clusters(), families)
def test_the_order_of_objects_and_of_endpoints_does_not_matter(item: Cluster, family: Family) -> None:
    one, other = normalise(item, family), normalise(reordered(item), family)
    assert list(one.services.items()) == list(other.services.items())


@given(clusters(), families)
def test_all_addresses_are_of_the_family_and_services_are_sorted(item: Cluster, family: Family) -> None:
    services = normalise(item, family).services
    assert list(services) == sorted(services)
    for one in services.values():
        addresses = [one.cluster_ip, *one.external_ips, *one.load_balancer_ips, *(one.source_ranges or ())]
        addresses += [e.address for port in one.ports for e in port.endpoints]
        assert {a.version for a in addresses} == {4 if family is V4 else 6}
        assert one.key in item.services


@given(clusters(), families)
def test_a_service_depends_on_itself_and_its_slices_only(item: Cluster, family: Family) -> None:
    together = normalise(item, family).services
    for key, one in item.services.items():
        own = {k: s for k, s in item.slices.items() if k[0] == key[0]}
        alone = normalise(Cluster(services={key: one}, slices=own), family).services
        assert alone.get(key) == together.get(key)


def test_a_slice_that_was_replaced_by_an_equal_one_stays_when_another_comes() -> None:
    def first() -> api.EndpointSlice:
        return slice_of(endpoint("10.1.0.1"), name="web-1")

    same, second = first(), slice_of(endpoint("10.1.0.2"), name="web-2")
    snapshot: Snapshot | None = None
    for slices in ((first(),), (same,), (same, second)):
        snapshot = normalise(cluster(service(), *slices), V4, snapshot)
    assert snapshot is not None
    assert places(snapshot.services[WEB].ports[0].endpoints) == ["10.1.0.1:8080", "10.1.0.2:8080"]


@given(histories(), families)
def test_any_history_ends_like_a_fresh_start_and_what_is_equal_stays_the_same_object(
    history: list[Cluster], family: Family
) -> None:
    snapshot: Snapshot | None = None
    for item in history:
        before, snapshot = snapshot, normalise(item, family, snapshot)
        fresh = normalise(item, family)
        assert snapshot == fresh
        assert list(snapshot.services) == list(fresh.services)
        if before is not None:
            same = [k for k, s in snapshot.services.items() if s == before.services.get(k)]
            assert all(snapshot.services[k] is before.services[k] for k in same)
            assert (snapshot.services is before.services) == (snapshot.services == before.services)


@given(clusters())
def test_a_snapshot_of_the_other_family_is_no_help_and_no_harm(item: Cluster) -> None:
    assert normalise(item, V6, normalise(item, V4)) == normalise(item, V6)


@given(histories())
def test_changed_keys_are_those_with_another_object(history: list[Cluster]) -> None:
    for old, new in pairwise(history):
        keys = old.slices.keys() | new.slices.keys()
        assert changed_keys(old.slices, new.slices) == {
            key for key in keys if old.slices.get(key) is not new.slices.get(key)
        }


# ---------------------------------------------------------------- changes, one by one


def after(before: Cluster, *changes: Cluster) -> Snapshot:
    """The last snapshot of a history."""
    snapshot = normalise(before, V4)
    for item in changes:
        snapshot = normalise(item, V4, snapshot)
    return snapshot


def test_a_slice_that_is_deleted_takes_its_endpoints_away() -> None:
    one, two = slice_of(endpoint("10.0.0.1"), name="one"), slice_of(endpoint("10.0.0.2"), name="two")
    both, rest = cluster(service(), one, two), cluster(service(), two)
    assert places(after(both).services[WEB].ports[0].endpoints) == ["10.0.0.1:8080", "10.0.0.2:8080"]
    assert places(after(both, rest).services[WEB].ports[0].endpoints) == ["10.0.0.2:8080"]
    assert places(after(both, cluster(service())).services[WEB].ports[0].endpoints) == []


def test_a_slice_that_gets_another_label_moves_to_another_service() -> None:
    services = service(), service("x", ["10.96.0.2"])
    mine, its = (slice_of(endpoint("10.0.0.1"), service=owner, name="s") for owner in ("web", "x"))
    found = after(cluster(*services, mine), cluster(*services, its)).services
    assert [places(one.ports[0].endpoints) for one in found.values()] == [[], ["10.0.0.1:8080"]]


def test_a_slice_that_came_before_its_service_is_not_forgotten() -> None:
    item = slice_of(endpoint("10.0.0.1"))
    assert places(after(cluster(item), cluster(item, service())).services[WEB].ports[0].endpoints) == [
        "10.0.0.1:8080"
    ]


def test_an_object_applied_again_changes_nothing() -> None:
    before = normalise(cluster(service(), slice_of(endpoint("10.0.0.1"))), V4)
    again = normalise(cluster(service(), slice_of(endpoint("10.0.0.1"))), V4, before)
    assert again.services is before.services


def test_a_note_goes_with_its_reason() -> None:
    bad, good = cluster(service(external_ips=["x"])), cluster(service())
    assert (len(after(bad).notes), after(bad, good).notes, after(bad, Cluster()).notes) == (1, (), ())
