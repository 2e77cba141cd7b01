"""Clauses of the topic change: changes of objects, and how soon they are in effect."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, E2E, KEP, OBSERVED, UNIT, must, should

HISTORY = (
    should(
        "change.in-effect-soon",
        "A change of a Service or of its endpoints that comes alone is in effect on every node soon after the API server has "
        "it, 99 of 100 within 5 s where little else changes: it waits for no periodic resync.",
        DOCS,
        links.PROGRAMMING_LATENCY,
        links.MIN_SYNC_PERIOD,
        links.SYNC_PERIOD,
        links.PROGRAMMING_LATENCY_TESTED,
        of="life.min-sync life.max-sync",
    ),
    must(
        "change.endpoint-added.used",
        "An endpoint that becomes ready gets new connections.",
        E2E,
        links.E2E_SERVICE,
        of="cip.endpoint.add noep.recover obj.slice-before-service",
    ),
    must(
        "change.endpoint-removed.not-used",
        "An endpoint that left gets no new connection.",
        E2E,
        links.E2E_SERVICE,
        of="cip.endpoint.remove",
    ),
    must(
        "change.last-endpoint-removed.rejected",
        "When the last endpoint leaves, new connections are refused.",
        E2E,
        links.E2E_SERVICE,
        links.kubernetes_issue(110301),
        of="noep.cip noep.recover",
    ),
    must(
        "change.readiness.followed",
        "Changes of ready, serving and terminating move new connections as if made from the start.",
        E2E,
        links.E2E_SERVICE,
        links.PROXY_TERMINATING_KEP,
        of="term.cluster.fallback term.local.fallback ready.only",
    ),
    must(
        "change.endpoint-moved-between-slices.undisturbed",
        "An endpoint that moves from one slice to another is never missing.",
        KEP,
        links.SLICES_KEP,
        links.UNIT_ENDPOINTS_MAP,
        of="obj.slice-move",
    ),
    must(
        "change.order-of-arrival.irrelevant",
        "Slices may arrive before their Service.",
        UNIT,
        links.UNIT_ENDPOINTS_MAP,
        of="obj.slice-before-service",
    ),
    must(
        "change.port-added.served",
        "A port added to a Service is served.",
        E2E,
        links.E2E_SERVICE,
        of="cip.port.add-remove",
    ),
    must(
        "change.port-removed.not-served",
        "A port removed from a Service is not served any more; its other ports are, of other protocols too.",
        E2E,
        links.E2E_SERVICE,
        links.kubernetes_issue(65263),
        of="cip.port.add-remove proto.remove-one np.change",
    ),
    must(
        "change.type.followed",
        "A change of type adds and removes only the addresses that come or go with it.",
        E2E,
        links.E2E_SERVICE,
        links.E2E_LOAD_BALANCER,
        of="obj.type-change lb.status-removed obj.externalname",
    ),
    must(
        "change.address.followed",
        "When a Service gets another address or node port, the new one is served and the old one is not.",
        UNIT,
        links.UNIT_SERVICE_MAP,
        links.E2E_NETWORKING,
        of="cip.changed-ip np.change lb.status-removed",
    ),
    must(
        "change.policy.followed",
        "A change of a traffic policy binds new connections, both ways.",
        E2E,
        links.E2E_LOAD_BALANCER,
        of="etp.switch",
    ),
    must(
        "change.source-ranges.followed",
        "A change of loadBalancerSourceRanges binds new connections.",
        E2E,
        links.E2E_LOAD_BALANCER,
        links.kubernetes_issue(33033),
        of="lb.lbsr.allow lb.lbsr.deny",
    ),
    must(
        "change.labels.followed",
        "Labels that hide a Service or a slice take effect when they are set and when they are removed.",
        E2E,
        links.E2E_SERVICE,
        of="obj.service-proxy-name obj.headless-label",
    ),
    must(
        "change.topology.followed",
        "Changes of hints and of the node's zone label move new connections, away and back.",
        E2E,
        links.E2E_TRAFFIC_DISTRIBUTION,
        of="topo.label-change topo.failover",
    ),
    should(
        "change.fields-without-bearing.undisturbed",
        "What does not concern forwarding changes nothing: appProtocol, trafficDistribution, labels and "
        "annotations of others, an Endpoints object beside EndpointSlices.",
        OBSERVED,
        links.SERVICE_API,
        links.SLICES_KEP,
        of="proto.appprotocol lb.lbsr.no-annotation topo.hints-not-field obj.endpoints-unused "
        "life.noop-service-update",
    ),
    must(
        "change.service-deleted.not-served",
        "A deleted Service is served at none of its addresses.",
        E2E,
        links.E2E_SERVICE,
        of="cip.up-down",
    ),
    must(
        "change.service-recreated.served",
        "A Service deleted and created again with the same address is served.",
        E2E,
        links.E2E_SERVICE,
        of="cip.recreate",
    ),
    must(
        "change.other-services.undisturbed",
        "A change to one Service, a faulty one included, costs no other Service a connection, "
        "even one that shares its addresses.",
        E2E,
        links.E2E_SERVICE,
        links.kubernetes_issue(80158),
        links.kubernetes_issue(73157),
        of="cip.up-down cip.port.add-remove",
    ),
    should(
        "change.half-written.never-met",
        "While a proxy applies a change, a new connection is handled as before the change or as after it, never in a third way, "
        "however slow the kernel is to take what the proxy writes.",
        OBSERVED,
        links.NFTABLES_KEP,
        links.SOURCE_NFTABLES,
        links.kubernetes_issue(48719),
        of="life.atomic",
    ),
    should(
        "change.rolling-update.no-failed-connection",
        "During a rolling update with overlapping readiness no new connection fails.",
        E2E,
        links.E2E_LOAD_BALANCER,
        of="lb.rolling-update",
    ),
)
"""Clauses that only several connections, a flow, a change or time can show; the oracle names none of these."""
