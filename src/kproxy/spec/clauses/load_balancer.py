"""Clauses of the topic load-balancer: connections to load balancer IPs."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, KEP, UNIT, must

PACKET = (
    must(
        "load-balancer.reaches-ready-endpoint",
        "A connection to a load balancer IP of mode VIP and a service port that arrives at or leaves "
        "a node reaches a usable endpoint without going out to the load balancer.",
        KEP,
        links.IP_MODE_KEP,
        links.E2E_LOAD_BALANCER,
        of="lb.vip.external lb.vip.from-pod lb.vip.from-node lb.ipmode.vip lb.status-ports-ignored",
    ),
    must(
        "load-balancer.ip-mode-proxy.untouched",
        "A load balancer IP of mode Proxy is not served by nodes: packets to it go out to the load balancer.",
        KEP,
        links.IP_MODE_KEP,
        links.SERVICE_IP_MODE,
        links.kubernetes_issue(123714),
        of="lb.ipmode.proxy lb.ipmode.proxy-etp-local",
        since="1.29",
    ),
    must(
        "load-balancer.hostname-only.ignored",
        "A load balancer ingress entry with only a hostname adds nothing and disturbs nothing.",
        DOCS,
        links.SERVICE_API,
        of="lb.hostname-only",
    ),
    must(
        "load-balancer.other-family.skipped",
        "A load balancer IP of a family that the Service does not have is passed over, and its other addresses are served.",
        UNIT,
        links.UNIT_SERVICE_MAP,
        of="ds.single-on-dual",
    ),
    must(
        "load-balancer.every-ip.served",
        "Each of several load balancer IPs is served.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="lb.multi-vip",
    ),
    must(
        "load-balancer.without-node-port.served",
        "A load balancer IP is served for a port that has no node port.",
        KEP,
        links.NO_NODE_PORTS_KEP,
        links.SERVICE_NO_NODE_PORTS,
        of="lb.no-nodeport",
        since="1.24",
    ),
)
"""Clauses that the outcome of one first packet shows."""
