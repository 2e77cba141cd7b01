"""Constructors of plans for tests of iptables mode."""

from collections.abc import Iterable
from functools import cache
from ipaddress import ip_address, ip_network

from hypothesis import strategies as st

from kproxy.model.network import Family, Protocol
from kproxy.proxy.plan import (
    DetectByCIDR,
    Exposure,
    Frontend,
    LocalDetector,
    MasqueradePolicy,
    NodePorts,
    OnEmpty,
    Plan,
    Pool,
    PoolEndpoint,
    PoolScope,
    ServicePlan,
    ServicePortName,
)

PODS = DetectByCIDR(ip_network("10.0.0.0/8"))


def pool(*endpoints: str, scope: PoolScope = PoolScope.CLUSTER) -> Pool:
    """Endpoints as ``10.0.0.1:80`` or ``fd00::1#80``."""
    found = []
    for text in endpoints:
        address, _, port = text.rpartition("#" if "#" in text else ":")
        found.append(PoolEndpoint(ip_address(address), int(port), may_be_here=scope is PoolScope.LOCAL))
    return Pool(scope, tuple(found))


def frontend(
    exposure: Exposure,
    address: str | None,
    port: int,
    reached: Pool,
    *,
    shortcut: Pool | None = None,
    sources: Iterable[str] | None = None,
    admit_self: bool = False,
    masquerade: MasqueradePolicy | None = None,
) -> Frontend:
    """A frontend with the policy that usually goes with its exposure and pool."""
    internal = exposure is Exposure.CLUSTER_IP
    usual = (
        MasqueradePolicy.OFF_CLUSTER
        if internal
        else MasqueradePolicy.NEVER
        if shortcut
        else MasqueradePolicy.ALWAYS
    )
    return Frontend(
        exposure=exposure,
        address=None if address is None else ip_address(address),
        port=port,
        pool=reached,
        shortcut=shortcut,
        on_empty=OnEmpty.DROP if shortcut and shortcut.endpoints else OnEmpty.REJECT,
        masquerade=masquerade or usual,
        sources=None if sources is None else tuple(map(ip_network, sources)),
        allow_hairpin_source=admit_self,
    )


def service(
    *frontends: Frontend,
    name: str = "ns1/svc1:p80",
    protocol: Protocol = Protocol.TCP,
    affinity: int | None = None,
) -> ServicePlan:
    namespace, _, rest = name.partition("/")
    own, _, port = rest.partition(":")
    return ServicePlan(
        name=ServicePortName(namespace, own, port, protocol.value),
        protocol=protocol,
        frontends=frontends,
        affinity_seconds=affinity,
    )


def plan_of(
    *services: ServicePlan,
    family: Family = Family.IPV4,
    detector: LocalDetector = PODS,
    node_ports: NodePorts | None = None,
    cluster_ips: MasqueradePolicy = MasqueradePolicy.OFF_CLUSTER,
) -> Plan:
    """A plan whose cluster IPs are by default masqueraded as those of `frontend` are."""
    ports = node_ports or NodePorts(None, localhost=family is Family.IPV4)
    return Plan(
        family=family,
        services=services,
        node_ports=ports,
        detector=detector,
        cluster_ip_masquerade=cluster_ips,
    )


ENDPOINTS = st.lists(st.sampled_from(tuple(f"10.0.0.{i}:80" for i in range(4))), unique=True, max_size=4)
BOOLEANS = st.booleans()
SOURCES = st.sampled_from([None, ("192.0.2.0/24",), ("192.0.2.0/24", "198.51.100.0/24")])
AFFINITIES = st.sampled_from([None, 60, 10800])
NUMBERS = st.sets(st.integers(1, 6))
NODE_PORTS = st.sampled_from(
    [NodePorts(None, localhost=True), NodePorts((ip_address("192.0.2.1"),), localhost=False)]
)
"""Made once: Hypothesis validates each strategy that it has not seen, which takes longer than to draw from it."""


@cache
def some_of(chosen: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    """Some of these, in any order."""
    return st.lists(st.sampled_from(chosen), unique=True)


@cache
@st.composite
def services(draw: st.DrawFn, number: int) -> ServicePlan:
    """Service ``number`` in one of many shapes; addresses of different numbers do not collide."""
    chosen = tuple(draw(ENDPOINTS))
    local = draw(BOOLEANS)
    everywhere = pool(*chosen)
    here = pool(*draw(some_of(chosen)), scope=PoolScope.LOCAL) if chosen else None
    reached, shortcut = (here, everywhere) if local and here is not None else (everywhere, None)
    found = [frontend(Exposure.CLUSTER_IP, f"10.96.0.{number}", 80, everywhere)]
    if draw(BOOLEANS):
        found.append(frontend(Exposure.NODE_PORT, None, 30000 + number, reached, shortcut=shortcut))
    if draw(BOOLEANS):
        sources = draw(SOURCES)
        balanced = frontend(
            Exposure.LOAD_BALANCER,
            f"203.0.113.{number}",
            80,
            reached,
            shortcut=shortcut,
            sources=sources,
            admit_self=draw(BOOLEANS),
        )
        found.append(balanced)
    return service(*found, name=f"ns/svc{number}:http", affinity=draw(AFFINITIES))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of up to six services; the same number is the same service in every plan."""
    numbers = sorted(draw(NUMBERS))
    ports = draw(NODE_PORTS)
    return plan_of(*(draw(services(number)) for number in numbers), node_ports=ports)
