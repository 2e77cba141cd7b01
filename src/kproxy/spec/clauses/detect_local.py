"""Clauses of the topic detect-local: distinction of pods from other senders."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import KEP, UNIT, must

PACKET = (
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
        "A clusterCIDR without a range of a family detects no pods in that family; in the other it does.",
        UNIT,
        links.UNIT_DETECT_LOCAL,
        of="det.dualstack",
    ),
    must(
        "detect-local.cluster-cidr.first-of-family",
        "In mode ClusterCIDR the first configured range of the family detects pods, and no other.",
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
"""Clauses that the outcome of one first packet shows."""
