"""Services, clauses and answers that the cases of several features together share.

Only values; the vocabulary is `kproxy.conformance.case`.  Modules ``TOPIC_combined`` use them: a proxy that gets each
part right may still mistake two of them together, since rules are written for each kind of address, family and protocol
apart; and what is long, many, first or last has limits of its own, in names of chains, comments and ranges of a set.
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.conformance.case import (
    CaseService,
    Feature,
    Lawful,
    Policy,
    Port,
    Probe,
    Target,
    Type,
    Vantage,
    Vip,
    service,
)
from kproxy.model.network import Protocol

LOCAL = Policy.LOCAL
BOTH_PROTOCOLS = (Port(name="a"), Port(name="b", number=53, protocol=Protocol.UDP))
OPEN = service("open", "a1", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1)
"""A Service with every kind of address."""

EXPOSED = {Feature.NODE_PORT, Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS}
EXTERNAL, INTERNAL = {Feature.EXTERNAL_TRAFFIC_POLICY}, {Feature.INTERNAL_TRAFFIC_POLICY}


REWRITTEN = {"masquerade.external-policy-cluster.rewritten"}
KEPT = "external-policy.local.local-endpoints-source-preserved"
PODS_EVERYWHERE = "external-policy.local.pods-reach-all-endpoints"
UDP_SERVED = "protocol.udp.served"


def external_targets(of: CaseService, node: str, port: str = "") -> tuple[Target, ...]:
    """Its node port on a node, and each of its load balancer and external IPs."""
    found = (
        of.node_port(node),
        *map(of.vip, range(len(of.vips))),
        *map(of.external_ip, range(of.external_ips)),
    )
    return tuple(target.at(port) for target in found)


def probe_each_address(
    sender: Vantage, of: CaseService, expect: Lawful, *clauses: str, port: str = "", spread: bool = False
) -> Iterator[Probe]:
    """The same question at each of these addresses."""
    for to in external_targets(of, sender.node, port):
        yield Probe(sender=sender, to=to, expect=expect, spread=spread, clauses=clauses)


SEVERAL = OPEN.replace(name="several", vips=(Vip(), Vip(ip_mode="VIP")), external_ips=2)
EVERY_IP = "load-balancer.every-ip.served"
REFUSED = "endpoints.none.rejected"
