"""What one service port puts into the maps."""

from ipaddress import ip_address, ip_network

import pytest

from kproxy.linux.netfilter.rules import End, Goto, Remember
from kproxy.model.network import Protocol
from kproxy.proxy.backends.nftables import names
from kproxy.proxy.backends.nftables.compile import (
    CountChain,
    SetElement,
    affinity_chains,
    service_elements,
    shared_objects,
    used_pools,
)
from kproxy.proxy.backends.nftables.names import FrontendMaps, PoolRole
from kproxy.proxy.backends.nftables.rules import Value
from kproxy.proxy.plan import Exposure, PoolScope, ServicePlan
from tests.support.plans import frontend, pool, service

EVERYWHERE = pool("10.0.0.1:80", "10.0.0.2:80")
HERE = pool("10.0.0.1:80", scope=PoolScope.LOCAL)
NOBODY = pool()
NOBODY_HERE = pool(scope=PoolScope.LOCAL)


def places(plan: ServicePlan) -> dict[PoolScope, tuple]:  # type: ignore[type-arg]
    return {scope: found.endpoints for scope, found in used_pools(plan).items()}


def of(plan: ServicePlan) -> dict[str, dict[tuple, Value]]:  # type: ignore[type-arg]
    found: dict[str, dict[tuple, Value]] = {}  # type: ignore[type-arg]
    for name, key, value in service_elements(plan, places(plan)):
        assert key not in found.setdefault(name, {}), "nothing twice"
        found[name][key] = value
    return found


def test_a_cluster_ip_leads_to_the_number_of_its_endpoints_and_to_each() -> None:
    key = (ip_address("10.96.0.1"), Protocol.TCP, 80)
    assert of(service(frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, EVERYWHERE))) == {
        "service-ips": {key: Goto("one-of-2")},
        "service-endpoints": {
            (*key, 0): (ip_address("10.0.0.1"), 80),
            (*key, 1): (ip_address("10.0.0.2"), 80),
        },
    }


def test_a_node_port_is_found_without_an_address() -> None:
    assert of(service(frontend(Exposure.NODE_PORT, None, 30080, EVERYWHERE)))["service-nodeports"] == {
        (Protocol.TCP, 30080): Goto("nodeport-one-of-2")
    }


@pytest.mark.parametrize(
    ("exposure", "address"), [(Exposure.LOAD_BALANCER, "203.0.113.1"), (Exposure.NODE_PORT, None)]
)
def test_external_policy_cluster_is_a_chain_before_the_endpoints(
    exposure: Exposure, address: str | None
) -> None:
    found = of(service(frontend(exposure, address, 80, EVERYWHERE)))
    way = FrontendMaps.NODE_PORT if address is None else FrontendMaps.ADDRESS
    assert list(found[way.policies].values()) == [Goto(way.cluster)]


def test_external_policy_local_has_all_endpoints_for_those_it_does_not_bind() -> None:
    found = of(service(frontend(Exposure.LOAD_BALANCER, "203.0.113.1", 80, HERE, shortcut=EVERYWHERE)))
    key = (ip_address("203.0.113.1"), Protocol.TCP, 80)
    assert found["external-ips"] == {key: Goto("external-local")}
    assert found["service-ips"] == {key: Goto("one-of-1")}
    assert found["shortcut-ips"] == {key: Goto("shortcut-one-of-2")}
    assert len(found["shortcut-service-endpoints"]) == 2


def test_nobody_anywhere_is_a_refusal_and_nobody_here_is_silence() -> None:
    nowhere = of(service(frontend(Exposure.NODE_PORT, None, 30080, NOBODY)))
    assert nowhere == {"no-endpoint-nodeports": {(Protocol.TCP, 30080): Goto("reject-chain")}}
    elsewhere = of(service(frontend(Exposure.NODE_PORT, None, 30080, NOBODY_HERE, shortcut=EVERYWHERE)))
    assert elsewhere["no-endpoint-nodeports"] == {(Protocol.TCP, 30080): End.DROP}
    assert elsewhere["external-nodeports"] == {(Protocol.TCP, 30080): Goto("nodeport-local")}


def test_source_ranges_do_not_overlap() -> None:
    """The kernel refuses intervals that do; one that another contains adds nothing."""
    ranges = ("192.0.2.0/24", "192.0.2.128/25", "192.0.2.0/24", "198.51.100.7/32")
    guarded = frontend(Exposure.LOAD_BALANCER, "203.0.113.1", 80, EVERYWHERE, sources=ranges, admit_self=True)
    found = of(service(guarded))
    assert set(found[names.FIREWALL_IPS]) == {(ip_address("203.0.113.1"), Protocol.TCP, 80)}
    assert {key[-1] for key in found[names.FIREWALL_SOURCES]} == {
        ip_network("192.0.2.0/24"),
        ip_network("198.51.100.7/32"),
        ip_network("203.0.113.1/32"),
    }


def test_ranges_hold_without_endpoints_too() -> None:
    """Behaviour ``lb.lbsr.noep``."""
    guarded = frontend(Exposure.LOAD_BALANCER, "203.0.113.1", 80, NOBODY, sources=("192.0.2.0/24",))
    assert len(of(service(guarded))[names.FIREWALL_SOURCES]) == 1


def test_shared_are_the_cluster_ip_local_endpoints_and_chains_for_counts() -> None:
    plan = service(
        frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, EVERYWHERE),
        frontend(Exposure.NODE_PORT, None, 30080, HERE, shortcut=EVERYWHERE),
    )
    found = list(shared_objects(plan, places(plan)))
    assert len(found) == len(set(found))
    local = ip_address("10.0.0.1")
    assert set(found) == {
        SetElement(names.CLUSTER_IPS, (ip_address("10.96.0.1"),)),
        SetElement(names.HAIRPIN, (local, local)),
        CountChain(FrontendMaps.ADDRESS, PoolRole.POOL, 2),
        CountChain(FrontendMaps.NODE_PORT, PoolRole.SHORTCUT, 2),
    }


STICKY = service(
    frontend(Exposure.CLUSTER_IP, "10.96.0.1", 80, EVERYWHERE),
    frontend(Exposure.NODE_PORT, None, 30080, HERE, shortcut=EVERYWHERE),
    affinity=60,
)


def test_all_frontends_of_a_service_with_affinity_share_its_chains() -> None:
    """Behaviours ``aff.scope-vip``, ``aff.local-restrict``."""
    found = of(STICKY)
    everywhere, here = (names.sticky_chain(STICKY, scope) for scope in (PoolScope.CLUSTER, PoolScope.LOCAL))
    assert set(found["service-ips"].values()) == {Goto(everywhere)}
    assert set(found["service-nodeports"].values()) == {Goto(here)}
    assert set(found["shortcut-nodeports"].values()) == {Goto(everywhere)}
    assert "service-endpoints" not in found
    made = {chain.name: chain for chain in affinity_chains(STICKY, places(STICKY))}
    assert len(made) == len(affinity_chains(STICKY, places(STICKY)))
    leads_to = [step.chain for rule in made[here].rules for step in rule.steps if isinstance(step, Goto)]
    assert set(leads_to) == {names.endpoint_chain(STICKY, EVERYWHERE.endpoints[0])}


def remembered(plan: ServicePlan) -> set[Remember]:
    chains = affinity_chains(plan, places(plan))
    return {
        step for chain in chains for rule in chain.rules for step in rule.steps if isinstance(step, Remember)
    }


def test_another_time_forgets_the_clients_of_the_old_one() -> None:
    """Behaviour ``aff.timeout-change``."""
    longer = service(*STICKY.frontends, affinity=61)
    assert len(remembered(STICKY)) == 2
    assert not {step.key for step in remembered(STICKY)} & {step.key for step in remembered(longer)}
    assert remembered(STICKY) == remembered(service(*STICKY.frontends, affinity=60))


def test_without_affinity_there_is_no_chain_of_its_own() -> None:
    assert affinity_chains(service(*STICKY.frontends), places(STICKY)) == ()


def test_long_names_stay_different_when_they_are_cut() -> None:
    def named(port: str) -> ServicePlan:
        return service(*STICKY.frontends, name=f"{'n' * 63}/{'s' * 63}:{'p' * 130}{port}", affinity=1)

    chains = [names.endpoint_chain(named(port), EVERYWHERE.endpoints[0]) for port in "ab"]
    assert chains[0] != chains[1]
    assert all(len(name) <= 255 for name in chains)
