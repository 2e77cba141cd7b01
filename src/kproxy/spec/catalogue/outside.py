"""Clauses on external IPs, load balancer IPs, and the source ranges that guard the latter."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.catalogue.row import DOCS, KEP, OBSERVED, UNIT, may, must, should

EXTERNAL_IP = (
    must(
        "external-ip.reaches-ready-endpoint",
        "A connection to an external IP and service port that arrives at or leaves a node reaches "
        "a usable endpoint, whether or not the node has that address.",
        DOCS,
        links.SERVICE_EXTERNAL_IPS,
        links.E2E_SERVICE,
        of="eip.basic",
    ),
    must(
        "external-ip.disabled.untouched",
        "With the feature gate AllowServiceExternalIPs off, external IPs are not served.",
        KEP,
        links.EXTERNAL_IPS_KEP,
        links.FEATURE_GATES,
        of="eip.gate",
        since="1.36",
    ),
    must(
        "external-ip.bad-text.skipped",
        "An external IP that is no address, or of a family the Service does not have, is passed over "
        "and the Service's other addresses are served.",
        UNIT,
        links.UNIT_SERVICE_MAP,
        links.kubernetes_issue(73157),
        of="eip.invalid",
    ),
    must(
        "external-address.undefined-port.not-served",
        "A port that the Service does not define on an external IP or load balancer IP reaches no endpoint.",
        DOCS,
        links.SERVICE_EXTERNAL_IPS,
        links.kubernetes_issue(22952),
        of="undef.vip-port eip.port",
    ),
    should(
        "external-ip.node-address.node-in-reach",
        "A Service at a node's own address takes its port alone: the node's other ports are in reach from everywhere.",
        OBSERVED,
        links.kubernetes_issue(75290),
        links.kubernetes_issue(114815),
        of="eip.is-node-ip lb.vip-local-nodeport",
    ),
)

LOAD_BALANCER = (
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

SOURCE_RANGES = (
    must(
        "source-ranges.inside-allowed",
        "A source inside loadBalancerSourceRanges reaches the load balancer IP.",
        DOCS,
        links.SERVICE_API,
        links.E2E_LOAD_BALANCER,
        of="lb.lbsr.allow lb.lbsr.split-halves lb.lbsr.node",
    ),
    must(
        "source-ranges.outside-dropped",
        "A source outside loadBalancerSourceRanges gets silence from the load balancer IP.",
        DOCS,
        links.SERVICE_API,
        links.E2E_LOAD_BALANCER,
        links.kubernetes_issue(85572),
        of="lb.lbsr.deny lb.lbsr.node-vip-source lb.lbsr.per-family",
    ),
    must(
        "source-ranges.apply-to-pods",
        "Source ranges bind pods too, though their packets never leave the node.",
        UNIT,
        links.UNIT_IPTABLES,
        links.E2E_LOAD_BALANCER,
        of="lb.lbsr.pods",
    ),
    should(
        "source-ranges.apply-to-host",
        "Source ranges bind the node's own processes too.",
        UNIT,
        links.UNIT_IPTABLES,
        links.kubernetes_issue(119656),
        of="lb.lbsr.node lb.lbsr.ipvs-node-block",
    ),
    should(
        "source-ranges.node-with-vip-as-source.allowed",
        "If a range holds the node's address, packets whose source is a load balancer IP of the Service "
        "are let in: a node that has that address sends so.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        links.kubernetes_issue(109826),
        of="lb.lbsr.node-vip-source",
    ),
    must(
        "source-ranges.zero-range.allows-all",
        "A /0 range lets every source of its family in.",
        UNIT,
        links.UNIT_SERVICE_MAP,
        of="lb.lbsr.zero-cidr",
    ),
    may(
        "source-ranges.other-family-only.either",
        "If no range is of the load balancer IP's family, all sources may be let in or none.",
        OBSERVED,
        links.UNIT_SERVICE_MAP,
        of="lb.lbsr.per-family",
    ),
    must(
        "source-ranges.blanks-trimmed",
        "Blanks around a range mean nothing.",
        UNIT,
        links.UNIT_IPTABLES,
        of="lb.lbsr.whitespace",
    ),
    must(
        "source-ranges.cluster-ip-exempt",
        "Source ranges do not bind the cluster IP.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="lb.lbsr.cip-exempt",
    ),
    must(
        "source-ranges.node-port-exempt",
        "Source ranges do not bind node ports.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="np.lbsr-bypass",
    ),
    should(
        "source-ranges.external-ip-exempt",
        "Source ranges do not bind external IPs.",
        OBSERVED,
        links.SERVICE_API,
        of="eip.lbsr-exempt",
    ),
    may(
        "source-ranges.no-endpoint.either",
        "With no endpoint, a source outside the ranges may be refused as one inside is, or get silence.",
        OBSERVED,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="lb.lbsr.noep",
    ),
)

TABLE = (*EXTERNAL_IP, *LOAD_BALANCER, *SOURCE_RANGES)
