"""Clauses of the topic topology: hints that keep traffic in a zone or on a node."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import KEP, OBSERVED, UNIT, must, should

PACKET = (
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
"""Clauses that the outcome of one first packet shows."""
