"""Clauses of the topic source-ranges: which sources loadBalancerSourceRanges lets reach a load balancer IP."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, OBSERVED, UNIT, may, must, should

PACKET = (
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
"""Clauses that the outcome of one first packet shows."""
