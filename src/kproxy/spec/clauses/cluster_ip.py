"""Clauses of the topic cluster-ip: connections to cluster IPs."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, KEP, UNIT, may, must, should

PACKET = (
    must(
        "cluster-ip.reaches-ready-endpoint",
        "A connection to a cluster IP and service port reaches a usable endpoint on its target port, "
        "and answers come from the cluster IP.",
        DOCS,
        links.VIRTUAL_IPS,
        links.E2E_SERVICE,
        of="cip.tcp.dnat cip.targetport cip.from-node cip.from-backend cip.shared-backend cip.multiport "
        "itp.cluster.default",
    ),
    should(
        "cluster-ip.from-outside.served",
        "A node that gets a packet from outside the cluster for a cluster IP serves it.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="cip.off-cluster itp.local.offcluster",
    ),
    must(
        "cluster-ip.any-range.served",
        "A cluster IP is served whichever range it is from.",
        KEP,
        links.SERVICE_CIDRS_KEP,
        links.E2E_SERVICE_CIDRS,
        of="cip.multi-cidr",
    ),
    must(
        "cluster-ip.undefined-port.not-served",
        "A port that the Service does not define on its cluster IP reaches no endpoint: "
        "the packet is rejected or left to routing.",
        KEP,
        links.NFTABLES_KEP,
        links.kubernetes_issue(72236),
        of="undef.cip-port undef.cip-of-portless",
    ),
    must(
        "cluster-ip.undefined-protocol.not-served",
        "A port number that the Service defines for another protocol only reaches no endpoint.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="undef.cip-proto",
    ),
    may(
        "cluster-ip.unallocated.not-served",
        "A packet to an address of a ServiceCIDR that no Service has is dropped or left to routing.",
        KEP,
        links.NFTABLES_KEP,
        of="undef.unallocated undef.unallocated.race",
    ),
)
"""Clauses that the outcome of one first packet shows."""
