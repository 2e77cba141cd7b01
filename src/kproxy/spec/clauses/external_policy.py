"""Clauses of the topic external-policy: externalTrafficPolicy."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, OBSERVED, UNIT, may, must, should

PACKET = (
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
        "With externalTrafficPolicy Local and no way to detect pods, pods are treated like clients outside.",
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
"""Clauses that the outcome of one first packet shows."""
