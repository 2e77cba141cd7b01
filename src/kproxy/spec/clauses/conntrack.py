"""Clauses of the topic conntrack: flows that last: established connections, stale and invalid connection tracking entries."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, E2E, KEP, OBSERVED, UNIT, must, should

HISTORY = (
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
        "A client that uses its source port again after its connection was closed is served like a new one: "
        "by an endpoint there is, at once.",
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
"""Clauses that only several connections, a flow, a change or time can show; the oracle names none of these."""
