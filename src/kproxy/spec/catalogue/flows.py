"""Clauses on flows that last: established connections, connection tracking, session affinity.

Only histories judge them: their IDs are in `kproxy.spec.clauses.TRANSITION_CLAUSES`, and the oracle
never names them.
"""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.catalogue.row import DOCS, E2E, KEP, OBSERVED, UNIT, may, must, should

ESTABLISHED = (
    must(
        "established.survives-endpoint-change",
        "A TCP connection stays with its endpoint when others come or go.",
        DOCS,
        links.VIRTUAL_IPS,
        of="cip.per-connection",
    ),
    must(
        "established.survives-removal-of-its-endpoint",
        "A TCP connection goes on after its endpoint left the Service, for as long as both ends live.",
        UNIT,
        links.UNIT_CONNTRACK,
        links.kubernetes_issue(102631),
        links.kubernetes_issue(57841),
        of="cip.tcp.established-after-remove ct.tcp-untouched noep.new-only",
    ),
    must(
        "established.survives-termination-of-its-endpoint",
        "A connection goes on while its endpoint terminates.",
        KEP,
        links.TERMINATING_KEP,
        links.PROXY_TERMINATING_KEP,
        of="term.existing-flows",
    ),
    must(
        "established.survives-policy-change",
        "A TCP connection goes on when a traffic policy changes or the last local endpoint leaves.",
        UNIT,
        links.UNIT_CONNTRACK,
        of="etp.local.drop-new-only ct.udp.policy-change",
    ),
    should(
        "established.survives-source-range-change",
        "A TCP connection goes on when the source ranges no longer hold its client.",
        OBSERVED,
        links.UNIT_IPTABLES,
        of="lb.lbsr.established",
    ),
    must(
        "established.survives-proxy-restart",
        "A TCP connection goes on while the proxy is down and after it has started again.",
        DOCS,
        links.VIRTUAL_IPS,
        links.kubernetes_issue(76376),
        of="cip.per-connection",
    ),
    should(
        "established.port-used-again.follows",
        "A client that uses its source port again after its connection was closed is served as anyone new: by an "
        "endpoint there is, at once.",
        OBSERVED,
        links.kubernetes_issue(81775),
        links.kubernetes_issue(84322),
        of="cip.per-connection cip.endpoint.remove",
    ),
    should(
        "established.survives-port-change-elsewhere",
        "A TCP connection on one port goes on when other ports of the Service come or go.",
        E2E,
        links.E2E_SERVICE,
        of="cip.port.add-remove",
    ),
)

CONNTRACK = (
    must(
        "conntrack.udp.moves-off-removed-endpoint",
        "A UDP client that keeps its source port is answered by a live endpoint after its own was removed.",
        E2E,
        links.E2E_CONNTRACK,
        links.kubernetes_issue(98305),
        of="ct.udp.endpoint-removed ct.udp.nodeport ct.udp.itp-local ct.udp.hostnet lb.udp-cycle "
        "ct.ipvs.expire",
    ),
    must(
        "conntrack.udp.moves-off-old-target-port",
        "A UDP client that keeps its source port follows a change of the target port.",
        E2E,
        links.E2E_CONNTRACK,
        of="ct.udp.port-change",
    ),
    must(
        "conntrack.udp.served-after-first-endpoint",
        "A UDP client that sent before there was an endpoint is answered, from the same source port, "
        "once there is one.",
        E2E,
        links.E2E_CONNTRACK,
        links.kubernetes_issue(48370),
        of="ct.udp.0-to-n ct.udp.trigger",
    ),
    should(
        "conntrack.udp.not-to-dead-endpoint-when-none-left",
        "When the last endpoint leaves, a UDP client that keeps its source port is not sent to it any more.",
        OBSERVED,
        links.kubernetes_issue(139628),
        of="ct.udp.last-endpoint",
    ),
    should(
        "conntrack.udp.not-to-endpoint-of-deleted-service",
        "When a Service is deleted, a UDP client that keeps its source port does not reach its endpoints.",
        OBSERVED,
        links.kubernetes_issue(141371),
        of="ct.udp.service-removed",
    ),
    must(
        "conntrack.udp.stays-with-serving-terminating-endpoint",
        "A UDP client that keeps its source port stays with an endpoint that terminates but serves.",
        KEP,
        links.kep("134143-preserve-udp-flows-terminating-endpoints"),
        links.UNIT_CONNTRACK,
        of="term.udp-keeps-serving",
    ),
    should(
        "conntrack.udp.stays-on-policy-change",
        "A UDP client that keeps its source port stays where it is when a policy or a hint changes.",
        UNIT,
        links.UNIT_CONNTRACK,
        of="ct.udp.policy-change",
    ),
    should(
        "conntrack.udp.stays-over-restart",
        "A restart of the proxy moves no UDP client off an endpoint that still serves.",
        OBSERVED,
        links.kubernetes_issue(122740),
        of="ct.udp.startup",
    ),
    must(
        "conntrack.unrelated.untouched",
        "Entries of other protocols and other traffic are left alone, "
        "even if they share an address or a port number with a Service.",
        UNIT,
        links.UNIT_CONNTRACK,
        links.kubernetes_issue(129982),
        of="ct.tcp-untouched ct.sctp-untouched ct.udp.nodeport-overmatch ct.family",
    ),
    must(
        "conntrack.invalid-not-leaked",
        "A segment that connection tracking finds invalid never reaches the client with "
        "the endpoint's own address.",
        E2E,
        links.E2E_CONNTRACK,
        links.kubernetes_issue(74839),
        of="ct.invalid-drop ct.liberal",
    ),
    should(
        "conntrack.liberal.set",
        "With conntrack.tcpBeLiberal, and with timeouts, connection tracking of the node is set so.",
        E2E,
        links.E2E_KUBE_PROXY,
        links.PROXY_CONFIGURATION,
        of="ct.liberal ct.sysctls",
    ),
    should(
        "conntrack.one-direction.passes",
        "Traffic of which the node sees one direction only passes: datagrams always, connections where "
        "conntrack.tcpBeLiberal is set.",
        OBSERVED,
        links.kubernetes_issue(94861),
        links.kubernetes_issue(74839),
        of="ct.liberal masq.nonservice",
    ),
)

AFFINITY = (
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
    may(
        "affinity.scope.per-port",
        "Ports of one Service may stick to different endpoints; the addresses of one port may share "
        "the choice or not.",
        OBSERVED,
        links.UNIT_NFTABLES,
        of="aff.scope-port aff.scope-vip",
    ),
)

TABLE = (*ESTABLISHED, *CONNTRACK, *AFFINITY)
