"""Clauses on what is on the wire besides the first packet of a connection: its size, its ports, errors about it.

Only histories judge them: their IDs are in `kproxy.spec.clauses.TRANSITION_CLAUSES`, and the oracle
never names them.
"""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.catalogue.row import DOCS, E2E, KEP, OBSERVED, UNIT, may, must, should

ERRORS = (
    must(
        "payload.large.passes",
        "Requests and answers larger than a packet pass, UDP fragments included.",
        E2E,
        links.E2E_NETWORKING,
        of="cip.large-payload",
    ),
    should(
        "icmp.errors.translated-back",
        "An ICMP error about a connection through a Service reaches whom it concerns, client or endpoint, as one "
        "about the address that it knows.",
        OBSERVED,
        "https://github.com/projectcalico/calico/issues/8854",
        of="cip.related-icmp",
    ),
    may(
        "icmp.ping.refused-or-routed",
        "A ping to an address of a Service may be refused or left to routing; the node itself does not answer it.",
        OBSERVED,
        links.NFTABLES_KEP,
        links.kubernetes_issue(22952),
        of="cip.icmp-echo eip.no-arp",
    ),
)

SOURCES = (
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
    should(
        "node-port.number-as-source.untouched",
        "A process may send from a port whose number is a node port; what is answered to it there is its own.",
        OBSERVED,
        links.kubernetes_issue(111682),
        of="np.no-listener",
    ),
)

NODES = (
    should(
        "node-port.forward-policy-drop.passes",
        "What comes in by a node port or a load balancer IP is forwarded though the node forwards nothing by default "
        "(modes that write rules of iptables).",
        OBSERVED,
        links.kubernetes_issue(59976),
        of="np.forward-policy",
    ),
)

HEALTH = (
    must(
        "health-check.local-endpoints.told",
        "A node's health check node port of a Service of type LoadBalancer under external policy Local answers 200 "
        "where there are ready endpoints, 503 where there are none; terminating ones that are not ready do not count.",
        E2E,
        links.E2E_LOAD_BALANCER,
        links.PROXY_TERMINATING_KEP,
        of="hcnp.scope hcnp.200 hcnp.ports-lifecycle hcnp.sync-order term.hcnp",
    ),
    should(
        "health-check.late-proxy.told",
        "A health check node port answers 503, however many endpoints there are, while its node's proxy is late with a "
        "change.",
        UNIT,
        links.UNIT_HEALTH,
        links.SOURCE_HEALTH,
        of="hcnp.proxy-unhealthy",
    ),
    should(
        "health-check.ready-flag-trusted",
        "A health check node port counts an endpoint that is marked ready also while it terminates "
        "(publishNotReadyAddresses).",
        DOCS,
        links.SERVICE_API,
        links.SOURCE_ENDPOINTS_MAP,
        of="hcnp.count-ips ready.publish-not-ready",
    ),
    should(
        "health-check.node-port-addresses.bind",
        "Health check node ports are on the addresses of the node that nodePortAddresses selects, and on no cluster IP.",
        UNIT,
        links.kubernetes_issue(82163),
        links.PROXY_CONFIGURATION,
        of="hcnp.listen-addrs",
    ),
    should(
        "health-check.number.told",
        "A health check node port tells as JSON how many ready endpoints its node has, each address once.",
        UNIT,
        links.UNIT_HEALTH,
        of="hcnp.payload hcnp.count-ips",
    ),
    should(
        "health-check.weight.told",
        "A health check node port tells the number of endpoints in the header X-Load-Balancing-Endpoint-Weight too.",
        UNIT,
        links.UNIT_HEALTH,
        links.kubernetes_issue(118999),
        of="hcnp.headers",
    ),
    should(
        "health-check.any-path.answered",
        "A health check node port answers whatever path it is asked for.",
        OBSERVED,
        links.SOURCE_HEALTH,
        of="hcnp.any-path",
    ),
    should(
        "health-check.input-policy-drop.passes",
        "Health check node ports answer though the node lets nothing in by default (modes that write rules of iptables).",
        UNIT,
        links.UNIT_IPTABLES,
        links.NFTABLES_KEP,
        of="hcnp.firewall-accept",
    ),
    must(
        "health-check.leaving-node.unaffected",
        "That its node is about to be removed does not change what a health check node port says.",
        KEP,
        links.DRAINING_KEP,
        links.UNIT_HEALTH,
        of="hcnp.no-taint",
    ),
)

PROXY_HEALTH = (
    must(
        "proxy-health.told",
        "A node's proxy answers 200 to /healthz and /livez at port 10256 of the node while it keeps up with what it is "
        "told, however long it is told nothing.",
        UNIT,
        links.UNIT_HEALTH,
        links.PROXY_CONFIGURATION,
        of="hz.ports hz.ok hz.idle-healthy",
    ),
    must(
        "proxy-health.late.told",
        "/healthz and /livez answer 503 when a change has waited for twice the syncPeriod and is not in the node's rules, "
        "and 200 once it is.",
        UNIT,
        links.UNIT_HEALTH,
        links.SOURCE_PROXY_HEALTH,
        of="hz.stale",
    ),
    must(
        "proxy-health.leaving-node.told",
        "On a node with the taint ToBeDeletedByClusterAutoscaler, or whose object is being deleted, /healthz answers 503, so "
        "that load balancers send nothing new, and /livez still 200.",
        KEP,
        links.DRAINING_KEP,
        links.UNIT_HEALTH,
        of="hz.node-taint",
    ),
    must(
        "proxy-health.leaving-node.serves",
        "A node that is about to be removed serves on: connections that it has and such as still come.",
        KEP,
        links.DRAINING_KEP,
        links.NODE_PREDICATES_KEP,
        of="hz.drain-contract",
    ),
)

SCTP = (
    should(
        "protocol.sctp.many-addresses.served",
        "An association whose client lists several addresses is served over the address that was asked; that its other "
        "addresses serve as further paths, nobody promises.",
        OBSERVED,
        links.SCTP_KEP,
        links.kubernetes_issue(102128),
        of="proto.sctp.multihoming",
        since="1.20",
    ),
    must(
        "protocol.sctp.without-sockets.served",
        "An SCTP port is served on nodes whose kernel has no SCTP itself, but for netfilter's part of it.",
        E2E,
        links.SCTP_KEP,
        links.E2E_SERVICE,
        of="proto.sctp.module",
        since="1.20",
    ),
)

TABLE = (*ERRORS, *SOURCES, *NODES, *HEALTH, *PROXY_HEALTH, *SCTP)
