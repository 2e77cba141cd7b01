"""Clauses on which of the usable endpoints a policy or a hint leaves: internal, external, topology."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.catalogue.row import DOCS, KEP, OBSERVED, UNIT, may, must, should

INTERNAL_POLICY = (
    must(
        "internal-policy.local.same-node",
        "With internalTrafficPolicy Local a cluster IP is answered by endpoints of the sender's node only.",
        DOCS,
        links.INTERNAL_POLICY,
        links.INTERNAL_POLICY_KEP,
        links.E2E_SERVICE,
        of="itp.local itp.local.hostnet-client itp.local.hostnet-backend itp.local.masq-same",
        since="1.26",
    ),
    must(
        "internal-policy.local.drop-without-local-endpoint",
        "With internalTrafficPolicy Local, if there are endpoints but none on the sender's node, "
        "the packet is dropped.",
        DOCS,
        links.INTERNAL_POLICY,
        links.INTERNAL_POLICY_KEP,
        of="itp.local.none noep.rej-vs-drop",
        since="1.26",
    ),
    may(
        "internal-policy.local.only-terminating-elsewhere.either",
        "With internalTrafficPolicy Local, if the only usable endpoints terminate on other nodes, "
        "the packet is dropped or refused.",
        OBSERVED,
        links.UNIT_TOPOLOGY,
        of="itp.local.none",
    ),
    must(
        "internal-policy.external-addresses-exempt",
        "internalTrafficPolicy does not bind node ports, external IPs or load balancer IPs.",
        KEP,
        links.INTERNAL_POLICY_KEP,
        links.kubernetes_issue(106497),
        of="itp.local.not-external etp.itp.independent",
    ),
)

EXTERNAL_POLICY = (
    must(
        "external-policy.local.local-endpoints-source-preserved",
        "With externalTrafficPolicy Local, traffic from outside to a node port, external IP or load balancer "
        "IP is answered by endpoints of the node it came to, which see the client's address.",
        DOCS,
        links.EXTERNAL_POLICY,
        links.SERVICE_API,
        links.E2E_LOAD_BALANCER,
        of="etp.local.external eip.etp-local lb.source-preserve-dsr",
    ),
    must(
        "external-policy.local.drop-without-local-endpoint",
        "With externalTrafficPolicy Local, if there are endpoints but none on the node, "
        "traffic from outside is dropped.",
        DOCS,
        links.SERVICE_API,
        links.E2E_LOAD_BALANCER,
        of="etp.local.none term.local.remote-only noep.rej-vs-drop",
    ),
    must(
        "external-policy.local.pods-reach-all-endpoints",
        "With externalTrafficPolicy Local, a pod of the node reaches any endpoint of the cluster, "
        "also if the node has none, and the endpoint sees the pod's address.",
        DOCS,
        links.SERVICE_API,
        links.E2E_LOAD_BALANCER,
        links.kubernetes_issue(131765),
        of="etp.local.pod-shortcut etp.local.shortcut-none etp.local.ipvs-no-shortcut",
    ),
    must(
        "external-policy.local.host-reaches-all-endpoints",
        "With externalTrafficPolicy Local, a process of the node reaches any endpoint of the cluster, "
        "also if the node has none, and the endpoint sees an address of the node.",
        DOCS,
        links.SERVICE_API,
        links.UNIT_IPTABLES,
        links.kubernetes_issue(75262),
        of="etp.local.node-shortcut etp.local.shortcut-none",
    ),
    should(
        "external-policy.local.no-detector.pods-as-outside",
        "With externalTrafficPolicy Local and no way to tell pods, pods are treated as if outside.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="etp.local.pod-shortcut.nodetector det.none",
    ),
    may(
        "external-policy.local.other-nodes-pod.either",
        "With externalTrafficPolicy Local, a pod of another node is served as a pod of this node, "
        "or as a client outside, or gets nothing because the answer takes another way back.",
        OBSERVED,
        links.SERVICE_API,
        links.DETECT_LOCAL_KEP,
        of="np.cidr-detector-asymmetry",
    ),
    must(
        "external-policy.cluster-ip-exempt",
        "externalTrafficPolicy does not bind the cluster IP.",
        DOCS,
        links.SERVICE_API,
        links.UNIT_IPTABLES,
        of="etp.local.cip-unaffected etp.ignored-internal-only etp.itp.independent",
    ),
)

TOPOLOGY = (
    must(
        "topology.same-zone",
        "If every ready endpoint has a zone hint and one names the node's zone, "
        "only endpoints hinted for that zone answer.",
        KEP,
        links.HINTS_KEP,
        links.TRAFFIC_DISTRIBUTION_KEP,
        links.E2E_TRAFFIC_DISTRIBUTION,
        of="topo.zone topo.hints-not-field",
        since="1.24",
    ),
    must(
        "topology.several-zones-in-hint",
        "An endpoint hinted for several zones answers in each of them.",
        UNIT,
        links.UNIT_TOPOLOGY,
        of="topo.multi-hint",
    ),
    must(
        "topology.same-node",
        "If every ready endpoint has a node hint and one names the node, "
        "only endpoints hinted for the node answer, whatever their zone hints.",
        KEP,
        links.SAME_NODE_KEP,
        links.UNIT_TOPOLOGY,
        of="topo.node topo.gate",
        since="1.34",
    ),
    must(
        "topology.no-node-match.zone-decides",
        "If no node hint names the node, zone hints decide.",
        KEP,
        links.SAME_NODE_KEP,
        links.UNIT_TOPOLOGY,
        of="topo.node.fallback-zone",
        since="1.34",
    ),
    must(
        "topology.missing-hint.all-endpoints",
        "One ready endpoint without a hint of a kind makes all hints of that kind void.",
        KEP,
        links.HINTS_KEP,
        links.UNIT_TOPOLOGY,
        of="topo.missing-hint",
    ),
    must(
        "topology.unready-hints-ignored",
        "Hints of endpoints that are not ready do not count.",
        UNIT,
        links.UNIT_TOPOLOGY,
        links.kubernetes_issue(106507),
        of="topo.unready-ignored",
    ),
    must(
        "topology.no-zone-label.all-endpoints",
        "On a node without a zone label zone hints do not count.",
        KEP,
        links.HINTS_KEP,
        links.UNIT_TOPOLOGY,
        of="topo.no-zone-label",
    ),
    must(
        "topology.no-match.all-endpoints",
        "If no hint names the node or its zone, all ready endpoints answer.",
        KEP,
        links.HINTS_KEP,
        links.UNIT_TOPOLOGY,
        of="topo.no-match",
    ),
    should(
        "topology.terminating.hints-ignored",
        "When only terminating endpoints are left their hints do not count.",
        OBSERVED,
        links.UNIT_TOPOLOGY,
        of="topo.terminating",
    ),
    must(
        "topology.local-policy.hints-ignored",
        "Under policy Local hints do not count.",
        KEP,
        links.INTERNAL_POLICY_KEP,
        links.UNIT_TOPOLOGY,
        of="topo.local-policy",
    ),
    must(
        "topology.external-traffic.hints-followed",
        "Hints bind node ports, external IPs and load balancer IPs as well, by the zone of the node "
        "that the packet came to.",
        KEP,
        links.INTERNAL_POLICY_KEP,
        of="topo.external-cluster",
    ),
)

TABLE = (*INTERNAL_POLICY, *EXTERNAL_POLICY, *TOPOLOGY)
