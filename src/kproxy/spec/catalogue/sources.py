"""Clauses on the source address that an endpoint sees, how pods are told, and on protocols."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.catalogue.row import DOCS, E2E, KEP, OBSERVED, UNIT, may, must, should

MASQUERADE = (
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
        "If pods can be told, an endpoint that a process of the node reaches through a cluster IP "
        "sees an address of the node's that leads back to it.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="masq.cip.node masq.addr det.host-output",
    ),
    should(
        "masquerade.cluster-ip.outside-rewritten",
        "If pods can be told, an endpoint that anyone else reaches through a cluster IP sees an address "
        "of the node, so that answers come back through it.",
        DOCS,
        links.PROXY_CONFIGURATION,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="masq.cip.offcluster",
    ),
    should(
        "masquerade.cluster-ip.no-detector.preserved",
        "If pods cannot be told, the source of cluster IP traffic is not rewritten, whoever sends it "
        "but the node itself.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        links.UNIT_DETECT_LOCAL,
        of="det.none masq.cip.offcluster",
    ),
    may(
        "masquerade.cluster-ip.no-detector.host.either",
        "If pods cannot be told, what a process of the node sends to a cluster IP may be rewritten to an address of "
        "the node or not: where cluster IPs are the node's own addresses its kernel sends from them, and no other "
        "node could answer.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        links.SOURCE_IPVS,
        of="det.ipvs.none masq.cip.node",
    ),
    must(
        "masquerade.all.cluster-ip-rewritten",
        "With masqueradeAll, endpoints reached through a cluster IP see an address of the node, "
        "whoever asked.",
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
        "balancer IP see an address of the node, whoever asked and wherever the endpoint is.",
        DOCS,
        links.SOURCE_IP,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="np.masq np.from-pod np.from-node eip.masq lb.vip.masq",
    ),
    should(
        "masquerade.endpoint-of-the-node-itself.preserved",
        "A process of the node that is asked through that node sees who asks, whatever the policy: "
        "what does not leave the node is not rewritten.",
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

DETECT_LOCAL = (
    must(
        "detect-local.cluster-cidr",
        "In mode ClusterCIDR a source inside the configured range of the family is a pod, wherever it comes "
        "from, and no other is.",
        KEP,
        links.DETECT_LOCAL_KEP,
        links.PROXY_CONFIGURATION,
        of="det.clustercidr",
    ),
    must(
        "detect-local.cluster-cidr.per-family",
        "A clusterCIDR without a range of a family tells no pods in that family, and in the other as ever.",
        UNIT,
        links.UNIT_DETECT_LOCAL,
        of="det.dualstack",
    ),
    must(
        "detect-local.cluster-cidr.first-of-family",
        "In mode ClusterCIDR the first configured range of the family tells pods, and no other.",
        UNIT,
        links.UNIT_DETECT_LOCAL,
        links.PROXY_CONFIGURATION,
        of="det.clustercidr.first-only",
    ),
    must(
        "detect-local.node-cidr",
        "In mode NodeCIDR a source inside the Node's podCIDR of the family is a pod, and no other.",
        KEP,
        links.DETECT_LOCAL_KEP,
        links.PROXY_CONFIGURATION,
        of="det.nodecidr",
    ),
    must(
        "detect-local.bridge-interface",
        "In mode BridgeInterface what enters by the named interface is from a pod, and nothing else.",
        KEP,
        links.DETECT_LOCAL_KEP,
        links.UNIT_DETECT_LOCAL,
        of="det.bridge",
    ),
    must(
        "detect-local.interface-name-prefix",
        "In mode InterfaceNamePrefix what enters by an interface of that name prefix is from a pod, "
        "and nothing else.",
        KEP,
        links.DETECT_LOCAL_KEP,
        links.kubernetes_issue(134024),
        of="det.prefix",
    ),
)

PROTOCOLS = (
    must(
        "protocol.udp.served",
        "UDP is served like TCP, and answers come from the address and port that were asked.",
        DOCS,
        links.PROTOCOLS,
        links.E2E_NETWORKING,
        of="cip.udp.dnat",
    ),
    must(
        "protocol.sctp.served",
        "SCTP is served like TCP where the kernel has it.",
        KEP,
        links.SCTP_KEP,
        links.PROTOCOLS,
        of="cip.sctp.dnat np.sctp proto.sctp.nodeport",
        since="1.20",
    ),
    must(
        "protocol.same-number.independent",
        "Ports of different protocols with one number, service port or node port, are served side by side.",
        DOCS,
        links.SERVICE_MIXED_PROTOCOLS,
        links.MIXED_PROTOCOLS_KEP,
        links.E2E_SERVICE,
        of="proto.same-port np.both-protocols lb.mixed-protocol",
    ),
)

TABLE = (*MASQUERADE, *DETECT_LOCAL, *PROTOCOLS)
