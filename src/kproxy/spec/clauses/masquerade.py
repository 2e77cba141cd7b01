"""Clauses of the topic masquerade: the source address that an endpoint sees, hairpin included."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, E2E, KEP, OBSERVED, UNIT, may, must, should

PACKET = (
    must(
        "masquerade.cluster-ip.pod-source-preserved",
        "An endpoint that a pod reaches through a cluster IP sees the pod's own address.",
        DOCS,
        links.SOURCE_IP,
        links.E2E_SERVICE,
        of="masq.cip.pod",
    ),
    should(
        "masquerade.cluster-ip.host-rewritten",
        "If pods can be detected, an endpoint that a process of the node reaches through a cluster IP sees "
        "an address of the node's that leads back to it.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="masq.cip.node masq.addr det.host-output",
    ),
    should(
        "masquerade.cluster-ip.outside-rewritten",
        "If pods can be detected, an endpoint that any other client reaches through a cluster IP sees an "
        "address of the node, so that answers come back through it.",
        DOCS,
        links.PROXY_CONFIGURATION,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="masq.cip.offcluster",
    ),
    should(
        "masquerade.cluster-ip.no-detector.preserved",
        "If pods cannot be detected, the source of cluster IP traffic is not rewritten, except that of the "
        "node's own packets.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        links.UNIT_DETECT_LOCAL,
        of="det.none masq.cip.offcluster",
    ),
    may(
        "masquerade.cluster-ip.no-detector.host.either",
        "If pods cannot be detected, what a process of the node sends to a cluster IP may be rewritten to "
        "an address of the node or not: where cluster IPs are the node's own addresses its kernel sends "
        "from them, and no other node could answer.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        links.SOURCE_IPVS,
        of="det.ipvs.none masq.cip.node",
    ),
    must(
        "masquerade.all.cluster-ip-rewritten",
        "With masqueradeAll, endpoints reached through a cluster IP see an address of the node, whichever "
        "client sends.",
        DOCS,
        links.PROXY_CONFIGURATION,
        links.UNIT_IPTABLES,
        of="masq.all",
    ),
    must(
        "masquerade.all.external-local-exempt",
        "masqueradeAll does not rewrite traffic under externalTrafficPolicy Local.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="masq.all.scope",
    ),
    must(
        "masquerade.external-policy-cluster.rewritten",
        "Under externalTrafficPolicy Cluster, endpoints reached through a node port, external IP or load "
        "balancer IP see an address of the node, whichever client sends and wherever the endpoint is.",
        DOCS,
        links.SOURCE_IP,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="np.masq np.from-pod np.from-node eip.masq lb.vip.masq",
    ),
    should(
        "masquerade.endpoint-of-the-node-itself.preserved",
        "A process of the node that is reached through that node sees its client's address, whatever the "
        "policy: what does not leave the node is not rewritten.",
        OBSERVED,
        "https://github.com/torvalds/linux/blob/v6.1/net/ipv4/ip_input.c",
        of="cip.hostnetwork-backend",
    ),
    must(
        "masquerade.hairpin.rewritten",
        "An endpoint that reaches itself through a Service, by any kind of address, "
        "sees another source than its own.",
        E2E,
        links.E2E_SERVICE,
        links.DEBUG_HAIRPIN,
        of="hair.cip hair.np-vip hair.scope",
    ),
    may(
        "masquerade.host-with-pod-source.either",
        "A packet that the node sends from an address its detector takes for a pod's may be rewritten or not.",
        OBSERVED,
        links.DETECT_LOCAL_KEP,
        of="det.clustercidr det.nodecidr",
    ),
)
"""Clauses that the outcome of one first packet shows."""

HISTORY = (
    should(
        "masquerade.foreign-mark-bits.kept",
        "Marks that others set on a packet survive.",
        UNIT,
        links.kubernetes_issue(19983),
        of="masq.bit masq.bit.change",
    ),
    should(
        "masquerade.own-mark.cleared",
        "The mark by which a proxy remembers to rewrite a packet's source is gone when the packet leaves.",
        KEP,
        links.IPTABLES_CLEANUP_KEP,
        links.kubernetes_issue(90854),
        of="masq.mark-cleared masq.bit masq.bit.change",
    ),
    should(
        "masquerade.source-ports.redrawn",
        "Rewritten connections get source ports by chance, not the client's own.",
        OBSERVED,
        links.kubernetes_issue(76699),
        of="masq.port-random",
    ),
    should(
        "masquerade.same-source-ports.kept-apart",
        "Clients that use one source port and are rewritten to one address are all served, side by side.",
        OBSERVED,
        links.kubernetes_issue(78547),
        of="masq.port-random",
    ),
)
"""Clauses that only several connections, a flow, a change or time can show; the oracle names none of these."""
