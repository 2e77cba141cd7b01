"""Plans: frontends, pools, masquerade, what happens when nothing can answer, and that memory changes nothing."""

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import ip_address, ip_network
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.model import api
from kproxy.model.api import Cluster
from kproxy.model.network import Address, Family, family_of
from kproxy.proxy.plan import (
    DetectByCIDR,
    Exposure,
    Frontend,
    MasqueradePolicy,
    NodePorts,
    OnEmpty,
    Plan,
    PlanSettings,
    Pool,
    PoolScope,
    make_plan,
)
from kproxy.proxy.snapshot import Snapshot, normalise
from tests.support.objects import cluster, endpoint, service, slice_of
from tests.support.strategies import NODES, ZONES, clusters, histories

V4, V6 = Family.IPV4, Family.IPV6
HERE = PlanSettings(family=V4, node="node-1", zone="east", detector=DetectByCIDR(ip_network("10.0.0.0/16")))
VIP = api.LoadBalancerIngress(ip="203.0.113.9")
NODE_PORT = api.ServicePort("http", port=80, node_port=30080)
EXTERNAL = (Exposure.LOAD_BALANCER, Exposure.EXTERNAL_IP, Exposure.NODE_PORT)


def exposed(
    *, internal: str = "Cluster", external: str = "Cluster", ranges: Iterable[str] = ()
) -> api.Service:
    """A Service with one port and an address of each kind."""
    return service(
        ports=[NODE_PORT],
        external_ips=["198.51.100.1"],
        ingress=[VIP],
        internal_traffic_policy=internal,
        external_traffic_policy=external,
        load_balancer_source_ranges=list(ranges),
    )


def planned(*objects: api.Service | api.EndpointSlice, settings: PlanSettings = HERE) -> Plan:
    return make_plan(normalise(cluster(*objects), settings.family), settings)


def frontends(
    item: api.Service, *endpoints: api.Endpoint, settings: PlanSettings = HERE
) -> dict[Exposure, Frontend]:
    """The frontends of one Service with one port and at most one address of each kind."""
    (one,) = planned(item, slice_of(*endpoints), settings=settings).services
    return {frontend.exposure: frontend for frontend in one.frontends}


def cluster_ip(item: api.Service, *endpoints: api.Endpoint, settings: PlanSettings = HERE) -> Frontend:
    return frontends(item, *endpoints, settings=settings)[Exposure.CLUSTER_IP]


def addresses(pool: Pool | None) -> list[str]:
    assert pool is not None
    return [str(one.address) for one in pool.endpoints]


def terminating(address: str, node: str, *, serving: bool = True) -> api.Endpoint:
    return endpoint(address, node, ready=False, serving=serving, terminating=True)


OWN, OTHER = endpoint("10.0.1.1", "node-1"), endpoint("10.0.2.1", "node-2")


# ---------------------------------------------------------------- which frontends


def test_each_kind_of_address_is_a_frontend_with_its_own_port() -> None:
    found = frontends(exposed(), OWN)
    assert {kind: (f.address, f.port) for kind, f in found.items()} == {
        Exposure.CLUSTER_IP: (ip_address("10.96.0.1"), 80),
        Exposure.LOAD_BALANCER: (ip_address("203.0.113.9"), 80),
        Exposure.EXTERNAL_IP: (ip_address("198.51.100.1"), 80),
        Exposure.NODE_PORT: (None, 30080),
    }


def test_external_ips_can_be_forbidden_and_nothing_else_goes_with_them() -> None:
    found = frontends(exposed(), settings=replace(HERE, allow_external_ips=False))
    assert found.keys() == {Exposure.CLUSTER_IP, Exposure.LOAD_BALANCER, Exposure.NODE_PORT}


def test_an_address_listed_twice_is_one_frontend_and_keeps_its_source_ranges() -> None:
    item = service(ingress=[VIP], external_ips=["203.0.113.9"], load_balancer_source_ranges=["10.0.0.0/8"])
    (one,) = planned(item).services
    assert [f.exposure for f in one.frontends] == [Exposure.CLUSTER_IP, Exposure.LOAD_BALANCER]
    assert one.frontends[1].sources == (ip_network("10.0.0.0/8"),)


def test_affinity_is_the_services() -> None:
    assert planned(service(session_affinity="ClientIP")).services[0].affinity_seconds == 10800
    assert planned(service()).services[0].affinity_seconds is None


# ---------------------------------------------------------------- masquerade


@pytest.mark.parametrize(
    ("settings", "masquerade"),
    [
        (HERE, MasqueradePolicy.OFF_CLUSTER),
        (replace(HERE, detector=None), MasqueradePolicy.NEVER),
        (replace(HERE, masquerade_all=True), MasqueradePolicy.ALWAYS),
        (replace(HERE, masquerade_all=True, detector=None), MasqueradePolicy.ALWAYS),
    ],
)
@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_cluster_ip_masquerade_follows_detector_and_masquerade_all_whatever_the_policy(
    settings: PlanSettings, masquerade: MasqueradePolicy, policy: str
) -> None:
    found = cluster_ip(service(internal_traffic_policy=policy), OWN, settings=settings)
    assert found.masquerade is masquerade


@pytest.mark.parametrize("exposure", EXTERNAL)
@pytest.mark.parametrize("settings", [HERE, replace(HERE, detector=None), replace(HERE, masquerade_all=True)])
def test_external_traffic_is_masqueraded_by_cluster_and_never_by_local(
    exposure: Exposure, settings: PlanSettings
) -> None:
    by_cluster = frontends(exposed(), OWN, settings=settings)[exposure]
    by_local = frontends(exposed(external="Local"), OWN, settings=settings)[exposure]
    assert (by_cluster.masquerade, by_local.masquerade) == (MasqueradePolicy.ALWAYS, MasqueradePolicy.NEVER)


# ---------------------------------------------------------------- policies


@pytest.mark.parametrize("internal", ["Cluster", "Local"])
@pytest.mark.parametrize("external", ["Cluster", "Local"])
def test_the_policies_bind_their_own_side_only(internal: str, external: str) -> None:
    item = exposed(internal=internal, external=external)
    found = frontends(item, OWN, OTHER)
    both, own = ["10.0.1.1", "10.0.2.1"], ["10.0.1.1"]
    assert addresses(found[Exposure.CLUSTER_IP].pool) == (own if internal == "Local" else both)
    assert found[Exposure.CLUSTER_IP].shortcut is None
    for exposure in EXTERNAL:
        assert addresses(found[exposure].pool) == (own if external == "Local" else both)
        if external == "Local":
            assert addresses(found[exposure].shortcut) == both
        else:
            assert found[exposure].shortcut is None


def test_external_policy_without_an_external_address_changes_nothing() -> None:
    assert (
        planned(service(external_traffic_policy="Local"), slice_of(OWN, OTHER)).services
        == planned(service(), slice_of(OWN, OTHER)).services
    )


def test_an_endpoint_is_of_this_node_by_its_node_name_and_may_be_without_one() -> None:
    """Never by its address: without a name it may be a pod that is sent to itself, and policy Local does not choose it."""
    settings = replace(HERE, node_ips=(ip_address("10.0.3.1"),), node_addresses=(ip_address("10.0.3.1"),))
    unnamed = endpoint("10.0.3.1")
    found = cluster_ip(service(), OWN, OTHER, unnamed, settings=settings)
    assert [e.may_be_here for e in found.pool.endpoints] == [True, False, True]
    local = cluster_ip(service(internal_traffic_policy="Local"), OWN, OTHER, unnamed, settings=settings)
    assert [e.address for e in local.pool.endpoints] == [found.pool.endpoints[0].address]


# ---------------------------------------------------------------- nothing can answer


@pytest.mark.parametrize(
    "endpoints",
    [
        pytest.param([], id="noep.cip"),
        pytest.param([endpoint("10.0.1.1", "node-1", ready=False, serving=False)], id="ready.single-dead"),
        pytest.param([terminating("10.0.1.1", "node-1", serving=False)], id="ready.unready-terminating"),
        pytest.param(
            [endpoint("10.0.1.1", "node-1", ready=False, serving=True)], id="serving, not terminating"
        ),
    ],
)
@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_no_usable_endpoint_in_the_cluster_is_a_rejection(endpoints: list[api.Endpoint], policy: str) -> None:
    for found in frontends(exposed(internal=policy, external=policy), *endpoints).values():
        assert (found.on_empty, addresses(found.pool)) == (OnEmpty.REJECT, [])
        assert found.shortcut is None or addresses(found.shortcut) == []


@pytest.mark.parametrize("elsewhere", [OTHER, terminating("10.0.2.1", "node-2")])
def test_endpoints_on_other_nodes_only_are_silence_under_local_policies(elsewhere: api.Endpoint) -> None:
    for exposure, found in frontends(exposed(internal="Local", external="Local"), elsewhere).items():
        assert (found.on_empty, addresses(found.pool)) == (OnEmpty.DROP, [])
        if exposure in EXTERNAL:  # etp.local.shortcut-none
            assert addresses(found.shortcut) == ["10.0.2.1"]


# ---------------------------------------------------------------- readiness and termination


def test_one_ready_endpoint_anywhere_is_enough_to_leave_the_terminating_alone() -> None:
    assert addresses(cluster_ip(service(), terminating("10.0.1.1", "node-1"), OTHER).pool) == ["10.0.2.1"]


def test_without_a_ready_endpoint_those_that_terminate_but_serve_are_used() -> None:
    dead = terminating("10.0.1.2", "node-1", serving=False)
    found = cluster_ip(service(), terminating("10.0.1.1", "node-1"), dead, terminating("10.0.2.1", "node-2"))
    assert addresses(found.pool) == ["10.0.1.1", "10.0.2.1"]


def test_a_node_decides_alone_about_its_terminating_endpoints_under_a_local_policy() -> None:
    item = exposed(external="Local")
    found = frontends(item, terminating("10.0.1.1", "node-1"), OTHER)
    assert addresses(found[Exposure.NODE_PORT].pool) == ["10.0.1.1"]
    assert addresses(found[Exposure.NODE_PORT].shortcut) == ["10.0.2.1"]
    assert addresses(found[Exposure.CLUSTER_IP].pool) == ["10.0.2.1"]


# ---------------------------------------------------------------- topology


def near(
    address: str, zones: Iterable[str] = (), nodes: Iterable[str] = (), *, ready: bool = True
) -> api.Endpoint:
    return endpoint(address, "node-2", ready=ready, serving=ready, zones=zones, nodes=nodes)


@pytest.mark.parametrize(
    ("endpoints", "chosen"),
    [
        pytest.param([near("10.0.0.1", ["east"]), near("10.0.0.2", ["west"])], [1], id="topo.zone"),
        pytest.param([near("10.0.0.1", ["east"]), near("10.0.0.2")], [1, 2], id="topo.missing-hint"),
        pytest.param([near("10.0.0.1", ["west"]), near("10.0.0.2", ["west"])], [1, 2], id="topo.no-match"),
        pytest.param(
            [near("10.0.0.1", ["west", "east"]), near("10.0.0.2", ["west"])], [1], id="topo.multi-hint"
        ),
        pytest.param(
            [near("10.0.0.1", ["east"], ["node-2"]), near("10.0.0.2", ["west"], ["node-1"])],
            [2],
            id="topo.node",
        ),
        pytest.param(
            [near("10.0.0.1", ["east"], ["node-2"]), near("10.0.0.2", ["west"], ["node-3"])],
            [1],
            id="topo.node.fallback-zone",
        ),
        pytest.param(
            [near("10.0.0.1", ["east"]), near("10.0.0.2", ["west"], ["node-1"])],
            [1],
            id="node hint missing on one",
        ),
        pytest.param(
            [near("10.0.0.1", ["east"], ready=False), near("10.0.0.2", ["west"])],
            [2],
            id="topo.unready-ignored",
        ),
        pytest.param(
            [near("10.0.0.1", ready=False), near("10.0.0.2", ["east"]), near("10.0.0.3", ["west"])],
            [2],
            id="an unready one need not have hints",
        ),
    ],
)
def test_hints_choose_the_nearest(endpoints: list[api.Endpoint], chosen: list[int]) -> None:
    expected = [f"10.0.0.{number}" for number in chosen]
    found = frontends(exposed(), *endpoints)
    assert addresses(found[Exposure.CLUSTER_IP].pool) == expected
    assert addresses(found[Exposure.NODE_PORT].pool) == expected  # topo.external-cluster


def test_a_node_without_a_zone_follows_no_zone_hint_and_reports_so() -> None:
    objects = service(), slice_of(near("10.0.0.1", ["east"]), near("10.0.0.2", ["west"]))
    nowhere = planned(*objects, settings=replace(HERE, zone=""))
    assert addresses(nowhere.services[0].frontends[0].pool) == ["10.0.0.1", "10.0.0.2"]
    assert [(n.subject, "zone" in n.text) for n in nowhere.notes] == [("Service test/web", True)]
    assert planned(*objects).notes == ()


def test_a_note_about_hints_goes_with_its_reason() -> None:
    objects = service(), slice_of(near("10.0.0.1", ["east"]), near("10.0.0.2"))
    unhinted = planned(*objects)
    assert len(unhinted.notes) == 1
    hinted = cluster(service(), slice_of(near("10.0.0.1", ["east"]), near("10.0.0.2", ["west"])))
    assert make_plan(normalise(hinted, V4), HERE, unhinted).notes == ()
    assert make_plan(normalise(Cluster(), V4), HERE, unhinted).notes == ()


def test_terminating_endpoints_are_used_whatever_their_hints() -> None:
    lingering = [
        endpoint(f"10.0.0.{n}", "node-2", ready=False, terminating=True, zones=[zone])
        for n, zone in enumerate(ZONES)
    ]
    assert addresses(cluster_ip(service(), *lingering).pool) == ["10.0.0.0", "10.0.0.1"]


def test_a_local_policy_ignores_hints_and_the_cluster_side_follows_them() -> None:
    far, close = (
        endpoint("10.0.1.1", "node-1", zones=["west"]),
        endpoint("10.0.2.1", "node-2", zones=["east"]),
    )
    found = frontends(exposed(external="Local"), far, close)[Exposure.NODE_PORT]
    assert (addresses(found.pool), addresses(found.shortcut)) == (["10.0.1.1"], ["10.0.2.1"])


# ---------------------------------------------------------------- source ranges


def test_source_ranges_bind_load_balancer_addresses_only() -> None:
    found = frontends(exposed(ranges=["10.0.0.0/8"]), OWN)
    assert {kind for kind, f in found.items() if f.sources is not None} == {Exposure.LOAD_BALANCER}


@pytest.mark.parametrize(
    ("ranges", "admitting"),
    [(["192.0.2.0/24"], {Exposure.LOAD_BALANCER}), (["10.0.0.0/8"], set()), ([], set())],
)
def test_a_range_with_the_nodes_ip_admits_packets_from_the_address_itself(
    ranges: list[str], admitting: set[Exposure]
) -> None:
    settings = replace(HERE, node_ips=(ip_address("fd00::7"), ip_address("192.0.2.7")))
    found = frontends(exposed(ranges=ranges), OWN, settings=settings)
    assert {kind for kind, f in found.items() if f.allow_hairpin_source} == admitting


# ---------------------------------------------------------------- node ports

LOCALS: tuple[Address, ...] = tuple(map(ip_address, ("127.0.0.1", "192.0.2.7", "10.0.0.7", "::1", "fd00::7")))


@pytest.mark.parametrize(
    ("family", "cidrs", "expected"),
    [
        pytest.param(V4, None, NodePorts(None, localhost=True), id="np.all-local-addrs"),
        pytest.param(V6, None, NodePorts(None, localhost=False), id="np.localhost.v6"),
        pytest.param(
            V4,
            ["192.0.2.0/24"],
            NodePorts((ip_address("192.0.2.7"),), localhost=False),
            id="np.addresses.cidr",
        ),
        pytest.param(
            V4, ["192.0.2.0/24", "0.0.0.0/0"], NodePorts(None, localhost=True), id="np.addresses.zero"
        ),
        pytest.param(V4, ["fd00::/64"], NodePorts(None, localhost=True), id="np.addresses.family-fallback"),
        pytest.param(
            V6, ["fd00::/64", "::1/128"], NodePorts((ip_address("fd00::7"),), localhost=False), id="v6"
        ),
        pytest.param(
            V4,
            ["127.0.0.0/8", "10.0.0.0/8"],
            NodePorts((ip_address("10.0.0.7"),), localhost=True),
            id="np.localhost.v4",
        ),
        pytest.param(V4, ["172.16.0.0/12"], NodePorts((), localhost=False), id="no address inside"),
    ],
)
def test_node_port_addresses(family: Family, cidrs: list[str] | None, expected: NodePorts) -> None:
    networks = None if cidrs is None else tuple(map(ip_network, cidrs))
    settings = replace(HERE, family=family, node_addresses=LOCALS, node_port_cidrs=networks)
    assert planned(settings=settings).node_ports == expected
    without = planned(settings=replace(settings, localhost_node_ports=False)).node_ports
    assert without == replace(expected, localhost=False)


# ---------------------------------------------------------------- services that want the same


def owner_of(address: str, *services: api.Service) -> list[tuple[str, Exposure]]:
    made = planned(*services)
    return [
        (one.name.name, f.exposure)
        for one in made.services
        for f in one.frontends
        if str(f.address) == address
    ]


def test_a_cluster_ip_cannot_be_taken_over_by_an_external_ip() -> None:
    thief, victim = (
        service("a-thief", ["10.96.0.9"], external_ips=["10.96.0.1"]),
        service("victim", ["10.96.0.1"]),
    )
    for order in permutations((thief, victim)):
        assert owner_of("10.96.0.1", *order) == [("victim", Exposure.CLUSTER_IP)]
    (note,) = planned(thief, victim).notes
    assert (note.subject, "test/victim" in note.text) == ("Service test/a-thief", True)


def test_of_two_equal_claims_the_first_by_name_is_served() -> None:
    rivals = [service(n, [f"10.96.0.{i}"], external_ips=["203.0.113.1"]) for i, n in enumerate("abc", 1)]
    for order in permutations(rivals):
        assert owner_of("203.0.113.1", *order) == [("a", Exposure.EXTERNAL_IP)]


def test_what_a_service_gives_up_goes_to_the_next() -> None:
    first, second = (
        service(n, [f"10.96.0.{i}"], external_ips=["203.0.113.1"]) for i, n in enumerate("ab", 1)
    )
    both = make_plan(normalise(cluster(first, second), V4), HERE)
    alone = make_plan(normalise(cluster(second), V4), HERE, both)
    assert [len(one.frontends) for one in both.services] == [2, 1]
    assert [len(one.frontends) for one in alone.services] == [2]


def test_an_address_without_a_claim_is_forgotten() -> None:
    first, second = (
        service(n, [f"10.96.0.{i}"], external_ips=["203.0.113.1"]) for i, n in enumerate("ab", 1)
    )
    made = None
    for objects in ((first, second), (first,), (), (second,)):
        snapshot = normalise(cluster(*objects), V4)
        made = make_plan(snapshot, HERE, made)
        assert made == make_plan(snapshot, HERE)


def test_other_ports_and_protocols_of_a_shared_address_are_no_conflict() -> None:
    ports = (
        [api.ServicePort("x", "TCP", 80)],
        [api.ServicePort("x", "UDP", 80)],
        [api.ServicePort("x", "TCP", 81)],
    )
    sharing = [service(f"s{i}", [f"10.96.0.{i}"], p, ingress=[VIP]) for i, p in enumerate(ports)]
    assert len(owner_of("203.0.113.9", *sharing)) == 3


# ---------------------------------------------------------------- properties


def settings_in(family: Family) -> st.SearchStrategy[PlanSettings]:
    detector = DetectByCIDR(ip_network("10.0.0.0/16" if family is V4 else "fd00::/64"))
    return st.builds(
        PlanSettings,
        family=st.just(family),
        node=st.sampled_from((*NODES, "")),
        zone=st.sampled_from((*ZONES, "")),
        node_ips=st.sampled_from(((), (ip_address("10.0.0.1"), ip_address("fd00::1")))),
        node_addresses=st.sampled_from(((), LOCALS)),
        detector=st.sampled_from((None, detector)),
        masquerade_all=st.booleans(),
        node_port_cidrs=st.sampled_from((None, (ip_network("10.0.0.0/8"),))),
        localhost_node_ports=st.booleans(),
        allow_external_ips=st.booleans(),
    )


anywhere = st.sampled_from(Family).flatmap(settings_in)


@given(clusters(), anywhere)
def test_the_order_of_objects_does_not_matter(item: Cluster, settings: PlanSettings) -> None:
    backwards = Cluster(
        services=dict(reversed(list(item.services.items()))), slices=dict(reversed(list(item.slices.items())))
    )
    made = make_plan(normalise(item, settings.family), settings)
    assert made == make_plan(normalise(backwards, settings.family), settings)


@given(clusters(), anywhere)
def test_pools_hold_only_usable_endpoints_of_their_service_port(
    item: Cluster, settings: PlanSettings
) -> None:
    snapshot = normalise(item, settings.family)
    known = {(p.name, p.protocol): p.endpoints for s in snapshot.services.values() for p in s.ports}
    for one in make_plan(snapshot, settings).services:
        usable = {
            (e.address, e.port, not e.node or e.node == settings.node)
            for e in known[one.name, one.protocol]
            if e.ready or (e.serving and e.terminating)
        }
        for pool in [p for f in one.frontends for p in (f.pool, f.shortcut) if p is not None]:
            chosen = [(e.address, e.port, e.may_be_here) for e in pool.endpoints]
            assert set(chosen) <= usable
            assert len(set(chosen)) == len(chosen)
            assert bool(chosen) or pool.scope is PoolScope.LOCAL or not usable
            assert pool.scope is PoolScope.CLUSTER or all(local for _, _, local in chosen)


@given(clusters(), anywhere)
def test_a_frontend_is_unique_of_its_family_and_consistent(item: Cluster, settings: PlanSettings) -> None:
    made = make_plan(normalise(item, settings.family), settings)
    every = [(one.protocol, f) for one in made.services for f in one.frontends]
    assert len({(protocol, f.address, f.port) for protocol, f in every}) == len(every)
    for _, found in every:
        assert (found.address is None) == (found.exposure is Exposure.NODE_PORT)
        assert found.address is None or family_of(found.address) is settings.family
        assert (found.shortcut is None) == (
            found.exposure is Exposure.CLUSTER_IP or found.pool.scope is PoolScope.CLUSTER
        )
        assert found.sources is None or found.exposure is Exposure.LOAD_BALANCER


@given(clusters(), anywhere, st.sampled_from(("10.0.0", "nonsense", "")))
def test_a_bad_object_changes_no_other_services_plan(
    item: Cluster, settings: PlanSettings, nonsense: str
) -> None:
    bad = service(
        "bad",
        [nonsense or "None"],
        [api.ServicePort("http", "ICMP", -5, 10**6), api.ServicePort("http", port=80)],
        namespace="a",
        external_ips=[nonsense],
        ingress=[api.LoadBalancerIngress(ip=nonsense, ip_mode="?")],
        load_balancer_source_ranges=[nonsense],
    )
    broken = slice_of(
        endpoint(nonsense), service="bad", namespace="a", name="bad-1", ports=[api.EndpointPort()]
    )
    worse = Cluster(
        services={("a", "bad"): bad, **item.services}, slices={("a", "bad-1"): broken, **item.slices}
    )
    before, after = (make_plan(normalise(one, settings.family), settings) for one in (item, worse))
    assert after.services == before.services


@given(st.data(), histories())
def test_any_history_ends_like_a_fresh_start_and_what_is_equal_stays_the_same_object(
    data: st.DataObject, history: list[Cluster]
) -> None:
    family = data.draw(st.sampled_from(Family))
    settings = data.draw(settings_in(family))
    snapshot: Snapshot | None = None
    made: Plan | None = None
    for item in history:
        settings = data.draw(st.one_of(st.just(settings), settings_in(family)))
        before, snapshot = made, normalise(item, family, snapshot)
        made = make_plan(snapshot, settings, before)
        assert made == make_plan(normalise(item, family), settings)
        if before is not None:
            old = {(one.name, one.protocol): one for one in before.services}
            equal = [one for one in made.services if one == old.get((one.name, one.protocol))]
            assert all(one is old[one.name, one.protocol] for one in equal)
            assert (made.services is before.services) == (made.services == before.services)


def test_a_change_of_one_slice_makes_new_objects_for_its_service_only() -> None:
    names = ("a", "b", "c")
    item = cluster(
        *[service(name, [f"10.96.0.{i}"]) for i, name in enumerate(names, 1)],
        *[slice_of(OWN, service=name, name=name) for name in names],
    )
    first = make_plan(normalise(item, V4), HERE)
    changed = replace(item, slices={**item.slices, ("test", "b"): slice_of(OTHER, service="b", name="b")})
    second = make_plan(normalise(changed, V4, normalise(item, V4)), HERE, first)
    assert [new is old for new, old in zip(second.services, first.services, strict=True)] == [
        True,
        False,
        True,
    ]


def test_settings_of_another_family_are_refused() -> None:
    with pytest.raises(ValueError, match="IPv6"):
        make_plan(normalise(Cluster(), V4), replace(HERE, family=V6))
