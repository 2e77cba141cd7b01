"""External IPs, load balancer IPs and source ranges: rows written from the catalogue of behaviours."""

# fmt: off
from __future__ import annotations

from kproxy.model import api
from tests.support.spec_world import (
    ADDRESS,
    CLUSTER_IP,
    CLUSTER_IP_6,
    EXTERNAL_IP,
    NODE_PORT,
    VIP,
    VIP_2,
    VIP_6,
    client,
    facts,
    host,
    ingress,
    on,
    piece,
    pod,
    pods,
    port,
    row,
    service,
)

EXTERNAL = service(external_ips=[EXTERNAL_IP])
BALANCED = service(vips=(ingress(VIP),))
HERE = ADDRESS["a"]

EXTERNAL_IPS = (
    row("external-ip.reaches-ready-endpoint", "eip.basic", client(EXTERNAL_IP), "~a1 ~b1",
        EXTERNAL, on("a1", "b1")),
    row("external-ip.reaches-ready-endpoint", "eip.masq", pod("a2", EXTERNAL_IP), "~a1 ~b1",
        EXTERNAL, on("a1", "b1")),
    row("external-ip.disabled.untouched", "eip.gate", client(EXTERNAL_IP), "UNTOUCHED",
        EXTERNAL, on("a1"), facts=facts(allow_external_ips=False)),
    row("cluster-ip.reaches-ready-endpoint", "cip.tcp.dnat", pod("a2", CLUSTER_IP), "a1",
        EXTERNAL, on("a1"), facts=facts(allow_external_ips=False)),
    row("external-ip.bad-text.skipped", "eip.invalid", client(EXTERNAL_IP), "~a1",
        service(external_ips=["nonsense", "2001:db8::1", EXTERNAL_IP]), on("a1")),
    row("external-address.undefined-port.not-served", "undef.vip-port", client(EXTERNAL_IP, 81),
        "UNTOUCHED REJECTED", EXTERNAL, on("a1")),
    row("external-address.undefined-port.not-served", "undef.vip-port", client(VIP, 81),
        "UNTOUCHED REJECTED", BALANCED, on("a1")),
    row("external-address.undefined-port.not-served", "undef.vip-port", client(HERE, 22),
        "UNTOUCHED", service(external_ips=[HERE]), on("a1")),
    row("external-ip.node-address.node-in-reach", "eip.is-node-ip", client(ADDRESS["b"], 22),
        "UNTOUCHED", service(external_ips=[ADDRESS["b"]]), on("a1")),
)

LOAD_BALANCERS = (
    row("load-balancer.reaches-ready-endpoint", "lb.vip.external", client(VIP), "~a1 ~b1",
        BALANCED, on("a1", "b1")),
    row("load-balancer.reaches-ready-endpoint", "lb.vip.from-pod", pod("a2", VIP), "~a1 ~b1",
        BALANCED, on("a1", "b1")),
    row("load-balancer.reaches-ready-endpoint", "lb.vip.from-node", host(VIP), "~a1 ~b1",
        BALANCED, on("a1", "b1")),
    row("load-balancer.reaches-ready-endpoint", "lb.ipmode.vip", client(VIP), "~a1",
        service(vips=(ingress(VIP, mode="VIP"),)), on("a1")),
    row("load-balancer.ip-mode-proxy.untouched", "lb.ipmode.proxy", pod("a2", VIP), "UNTOUCHED",
        service(vips=(ingress(VIP, mode="Proxy"),)), on("a1")),
    row("node-port.reaches-ready-endpoint", "np.tcp", client(HERE, NODE_PORT), "~a1",
        service(vips=(ingress(VIP, mode="Proxy"),)), on("a1")),
    row("load-balancer.hostname-only.ignored", "lb.hostname-only", client(VIP), "~a1",
        service(vips=(ingress(hostname="lb.example.com"), ingress(VIP))), on("a1")),
    row("load-balancer.other-family.skipped", "ds.single-on-dual", client(VIP), "~a1",
        service(vips=(ingress("2001:db8::1"), ingress(VIP))), on("a1")),
    row("load-balancer.every-ip.served", "lb.multi-vip", client(VIP_2), "~a1",
        service(vips=(ingress(VIP), ingress(VIP_2))), on("a1")),
    row("load-balancer.without-node-port.served", "lb.no-nodeport", client(VIP), "~a1",
        service(port(node_port=0), vips=(ingress(VIP),)), on("a1")),
    row("traffic.not-for-a-service.untouched", "lb.status-removed", client(VIP), "UNTOUCHED",
        service(), on("a1")),
)


def ranged(*ranges: str, vips: tuple[str, ...] = (VIP,), dual_stack: bool = False) -> api.Service:
    """A Service with source ranges."""
    return service(
        vips=tuple(ingress(ip) for ip in vips),
        external_ips=[EXTERNAL_IP],
        cluster_ips=[CLUSTER_IP, CLUSTER_IP_6] if dual_stack else [CLUSTER_IP],
        load_balancer_source_ranges=list(ranges),
    )


NOT_THE_CLIENT = "198.18.0.0/15"
SOURCE_RANGES = (
    row("source-ranges.inside-allowed", "lb.lbsr.allow", client(VIP), "~a1",
        ranged("203.0.113.0/24"), on("a1")),
    row("source-ranges.inside-allowed", "lb.lbsr.split-halves", client(VIP), "~a1",
        ranged("0.0.0.0/1", "128.0.0.0/1"), on("a1")),
    row("source-ranges.inside-allowed", "lb.lbsr.node", host(VIP), "~a1", ranged(f"{HERE}/32"), on("a1")),
    row("source-ranges.outside-dropped", "lb.lbsr.deny", client(VIP), "DROPPED",
        ranged(NOT_THE_CLIENT), on("a1")),
    row("source-ranges.apply-to-pods", "lb.lbsr.pods", pod("a2", VIP), "DROPPED",
        ranged(NOT_THE_CLIENT), on("a1")),
    row("source-ranges.apply-to-host", "lb.lbsr.ipvs-node-block", host(VIP), "DROPPED",
        ranged(NOT_THE_CLIENT), on("a1")),
    row("source-ranges.node-with-vip-as-source.allowed", "lb.lbsr.node-vip-source",
        host(VIP, source=VIP), "~a1", ranged(f"{HERE}/32"), on("a1")),
    row("source-ranges.node-with-vip-as-source.allowed", "lb.lbsr.node-vip-source",
        host(VIP_2, source=VIP), "~a1", ranged(f"{HERE}/32", vips=(VIP, VIP_2)), on("a1")),
    row("source-ranges.outside-dropped", "lb.lbsr.node-vip-source", host(VIP, source=VIP), "DROPPED",
        ranged(NOT_THE_CLIENT), on("a1")),
    row("source-ranges.zero-range.allows-all", "lb.lbsr.zero-cidr", client(VIP), "~a1",
        ranged(NOT_THE_CLIENT, "0.0.0.0/0"), on("a1")),
    row("source-ranges.outside-dropped", "lb.lbsr.per-family", client(VIP), "DROPPED",
        ranged(NOT_THE_CLIENT, "::/0"), on("a1")),
    row("source-ranges.other-family-only.either", "lb.lbsr.per-family", client(VIP_6), "~a1/6 DROPPED",
        ranged("203.0.113.0/24", vips=(VIP_6,), dual_stack=True),
        piece(*pods("a1/6"), address_type="IPv6")),
    row("source-ranges.blanks-trimmed", "lb.lbsr.whitespace", client(VIP), "~a1",
        ranged(" 203.0.113.0/24 "), on("a1")),
    row("source-ranges.cluster-ip-exempt", "lb.lbsr.cip-exempt", pod("a2", CLUSTER_IP), "a1",
        ranged(NOT_THE_CLIENT), on("a1")),
    row("source-ranges.node-port-exempt", "np.lbsr-bypass", client(HERE, NODE_PORT), "~a1",
        ranged(NOT_THE_CLIENT), on("a1")),
    row("source-ranges.external-ip-exempt", "eip.lbsr-exempt", client(EXTERNAL_IP), "~a1",
        ranged(NOT_THE_CLIENT), on("a1")),
    row("source-ranges.no-endpoint.either", "lb.lbsr.noep", client(VIP), "DROPPED REJECTED",
        ranged(NOT_THE_CLIENT)),
    row("source-ranges.no-endpoint.either", "lb.lbsr.noep", client(VIP), "DROPPED REJECTED", ranged("::/0")),
)

TABLE = (*EXTERNAL_IPS, *LOAD_BALANCERS, *SOURCE_RANGES)
