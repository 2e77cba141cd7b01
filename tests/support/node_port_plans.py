"""Plans of one Service with a node port."""

from __future__ import annotations

from ipaddress import ip_address

import msgspec

from kproxy.model.network import Family, Protocol
from kproxy.proxy.plan import (
    Exposure,
    Frontend,
    MasqueradePolicy,
    NodePorts,
    OnEmpty,
    Plan,
    Pool,
    PoolEndpoint,
    PoolScope,
    ServicePlan,
)
from kproxy.proxy.snapshot import ServicePortName

NEAR = PoolEndpoint(ip_address("10.0.0.1"), 8080, may_be_here=True)
FAR = PoolEndpoint(ip_address("10.0.0.2"), 8080, may_be_here=False)
NODE_PORT = Frontend(
    exposure=Exposure.NODE_PORT,
    address=None,
    port=30080,
    pool=Pool(PoolScope.CLUSTER, (NEAR, FAR)),
    on_empty=OnEmpty.REJECT,
    masquerade=MasqueradePolicy.ALWAYS,
)
CLUSTER_IP = msgspec.structs.replace(
    NODE_PORT, exposure=Exposure.CLUSTER_IP, address=ip_address("10.96.0.1"), port=80
)


def plan(
    *frontends: Frontend,
    protocol: Protocol = Protocol.TCP,
    family: Family = Family.IPV4,
    localhost: bool = True,
    serving: tuple[PoolEndpoint, ...] = (),
) -> Plan:
    service = ServicePlan(
        name=ServicePortName("default", "web", "http"),
        protocol=protocol,
        frontends=frontends,
        affinity_seconds=7,
        serving=serving,
    )
    return Plan(
        family=family,
        services=(service,),
        node_ports=NodePorts(addresses=None, localhost=localhost),
        detector=None,
        cluster_ip_masquerade=MasqueradePolicy.NEVER,
    )
