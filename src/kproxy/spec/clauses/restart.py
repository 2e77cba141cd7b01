"""Clauses of the topic restart: what the proxy's stop, start and changed configuration do, and what it leaves where it is removed."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, KEP, OBSERVED, UNIT, must, should

HISTORY = (
    must(
        "restart.rules-kept",
        "While the proxy is down new connections are served as before.",
        DOCS,
        links.VIRTUAL_IPS,
        links.kubernetes_issue(76376),
        of="cip.per-connection life.restart-keeps",
    ),
    should(
        "restart.no-failed-connection",
        "The start of a proxy on a node that already has its rules costs no connection.",
        OBSERVED,
        links.kubernetes_issue(76376),
        of="cip.per-connection",
    ),
    must(
        "restart.changes-while-down.applied",
        "What changed while the proxy was down is applied when it starts.",
        DOCS,
        links.VIRTUAL_IPS,
        of="ct.udp.startup life.restart-diff",
    ),
    must(
        "restart.zone-label.followed",
        "A proxy that starts on a node with a zone label follows zone hints from its first sync on.",
        KEP,
        links.HINTS_KEP,
        links.TRAFFIC_DISTRIBUTION_KEP,
        of="topo.zone",
    ),
    should(
        "restart.masquerade-bit.followed",
        "A proxy that starts with another masqueradeBit than the node's rules have goes by the new one alone: the old "
        "bit is a foreign one.",
        OBSERVED,
        links.PROXY_CONFIGURATION,
        links.SOURCE_IPTABLES,
        of="masq.bit.change",
    ),
    should(
        "restart.lists-incomplete.rules-kept",
        "A proxy that has started but not yet been given both Services and EndpointSlices leaves the rules it found: what "
        "they serve is served.",
        OBSERVED,
        links.SOURCE_IPTABLES,
        links.SOURCE_NFTABLES,
        of="life.wait-both",
    ),
    must(
        "restart.mode-change.old-rules-removed",
        "A proxy that starts in another mode serves by that mode's rules alone: in iptables and ipvs mode it removes those "
        "of nftables mode, in nftables mode those of the others.",
        KEP,
        links.NFTABLES_KEP,
        of="life.mode-switch life.mixed-nodes",
    ),
    should(
        "restart.stale-udp-entries.reconciled",
        "UDP entries that went stale while the proxy was down are removed when it starts.",
        UNIT,
        links.UNIT_CONNTRACK,
        links.kubernetes_issue(125467),
        of="ct.udp.startup",
    ),
    must(
        "cleanup.nothing-served",
        "On a node from which the proxy is removed by its own means (`--cleanup`), packets to Services are treated as if there "
        "had never been a proxy, also to those without an endpoint, and to those that some clients may not reach.",
        DOCS,
        links.PROXY_COMMAND,
        links.IPTABLES_CLEANUP_KEP,
        of="life.cleanup",
    ),
    should(
        "cleanup.nothing-left",
        "A proxy that is removed by its own means leaves no chain, rule, table, set, virtual server or device on the node that "
        "was not there before it, but for the chain KUBE-FIREWALL, which is kubelet's too, and takes nothing else.",
        OBSERVED,
        links.IPTABLES_CLEANUP_KEP,
        links.PROXY_COMMAND,
        of="life.cleanup",
    ),
)
"""Clauses that only several connections, a flow, a change or time can show; the oracle names none of these."""
