"""Clauses of the topic affinity: session affinity by client IP."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, E2E, OBSERVED, UNIT, may, must, should

HISTORY = (
    must(
        "affinity.client-ip.sticks",
        "With ClientIP affinity, new connections from one address to one service port reach one endpoint, "
        "UDP included.",
        DOCS,
        links.AFFINITY,
        links.E2E_SERVICE,
        of="aff.clientip aff.udp aff.new-conn-only",
    ),
    must(
        "affinity.client-ip.by-original-source",
        "Affinity goes by the client's own address, also where the endpoint sees the node's.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="aff.source-before-snat",
    ),
    should(
        "affinity.timeout.frees-choice",
        "After timeoutSeconds without a new connection the choice is free; each new one starts the time again.",
        DOCS,
        links.AFFINITY,
        links.E2E_SERVICE,
        of="aff.timeout",
    ),
    should(
        "affinity.timeout-change.followed",
        "A change of timeoutSeconds binds connections from then on.",
        OBSERVED,
        links.AFFINITY,
        of="aff.timeout-change",
    ),
    must(
        "affinity.switched-on-and-off",
        "Affinity may be switched on and off on a live Service.",
        E2E,
        links.E2E_SERVICE,
        of="aff.switch",
    ),
    must(
        "affinity.endpoint-gone.moves-at-once",
        "When the endpoint a client sticks to leaves or is not ready, its next connection reaches another.",
        DOCS,
        links.AFFINITY,
        links.kubernetes_issue(110302),
        of="aff.endpoint-gone",
    ),
    should(
        "affinity.endpoint-added.stays",
        "A client that sticks to an endpoint stays with it when others are added.",
        DOCS,
        links.AFFINITY,
        of="aff.clientip",
    ),
    should(
        "affinity.stays-over-restart",
        "A client that sticks to an endpoint stays with it when the proxy is started again.",
        OBSERVED,
        links.AFFINITY,
        links.SOURCE_NFTABLES,
        of="aff.clientip life.restart-keeps",
    ),
    must(
        "affinity.within-policy",
        "Affinity never leads to an endpoint that a policy or a hint leaves out.",
        DOCS,
        links.TRAFFIC_POLICIES,
        links.kubernetes_issue(55429),
        of="aff.local-restrict",
    ),
    may(
        "affinity.many-clients.either",
        "A client whose endpoint has had more others since than a proxy remembers of one (iptables mode: 100) may get "
        "another endpoint; it gets one all the same.",
        OBSERVED,
        links.XT_RECENT,
        of="aff.table-limit",
    ),
    must(
        "affinity.retry.moves",
        "Where a proxy retries, a client whose endpoint failed is bound to the one that answered.",
        UNIT,
        links.USERSPACE_PROXY,
        links.USERSPACE_BALANCER,
        of="cip.retry",
    ),
    may(
        "affinity.scope.per-port",
        "Ports of one Service may stick to different endpoints; the addresses of one port may share "
        "the choice or not.",
        OBSERVED,
        links.UNIT_NFTABLES,
        of="aff.scope-port aff.scope-vip",
    ),
)
"""Clauses that only several connections, a flow, a change or time can show; the oracle names none of these."""
