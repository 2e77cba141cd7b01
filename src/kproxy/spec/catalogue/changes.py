"""Clauses on many connections together, on changes of objects, and on restarts of the proxy.

Only histories judge them: their IDs are in `kproxy.spec.clauses.TRANSITION_CLAUSES`, and the oracle
never names them.
"""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.catalogue.row import DOCS, E2E, KEP, OBSERVED, UNIT, must, should

BALANCING = (
    must(
        "balancing.every-endpoint-chosen",
        "Over many connections every endpoint that may answer is chosen, and no other.",
        DOCS,
        links.VIRTUAL_IPS,
        links.E2E_SERVICE,
        of="cip.lb.uniform cip.lb.rr cip.from-node",
    ),
    must(
        "balancing.any-number-of-endpoints",
        "All of a Service's endpoints are chosen however many there are: in several slices of the usual hundred, and beyond a "
        "thousand.",
        KEP,
        links.SLICES_KEP,
        links.SLICES,
        links.kubernetes_issue(48107),
        of="cip.multi-slice life.large-cluster",
    ),
    should(
        "balancing.even",
        "New connections are spread evenly, at random with equal chances or in turn; an endpoint listed twice "
        "gets no double share, and when endpoints leave the others share alike.",
        DOCS,
        links.VIRTUAL_IPS,
        links.kubernetes_issue(64580),
        of="cip.lb.uniform cip.lb.rr cip.multi-slice",
    ),
)

CHANGES = (
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
        "What says nothing about forwarding changes nothing: appProtocol, trafficDistribution, labels and "
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
        "change.rolling-update.no-failed-connection",
        "During a rolling update with overlapping readiness no new connection fails.",
        E2E,
        links.E2E_LOAD_BALANCER,
        of="lb.rolling-update",
    ),
)

RESTART = (
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
)

TROUBLE = (
    should(
        "writes.refused.rules-kept",
        "While the kernel takes nothing that a node's proxy writes, what its rules serve is served as before.",
        OBSERVED,
        links.SOURCE_IPTABLES,
        links.SOURCE_NFTABLES,
        of="life.retry",
    ),
    must(
        "writes.refused.tried-again",
        "What the kernel refused is written when it takes it again, what was deleted meanwhile included, though nobody "
        "changes anything more.",
        UNIT,
        links.UNIT_RUNNER,
        links.UNIT_IPTABLES,
        of="life.retry life.retry.ipvs life.partial-fallback",
    ),
    must(
        "watch.interrupted.changes-applied",
        "What changes while a proxy cannot watch is applied when it can, deletions of which no event is sent any more "
        "included.",
        DOCS,
        links.CHANGES_IN_API,
        of="life.apiserver-down life.restart-diff",
    ),
    must(
        "watch.changes-together.last-counts",
        "Of several changes of an object that a proxy learns of together the last one counts; one that leads back "
        "leaves everything as it was.",
        UNIT,
        links.UNIT_SERVICE_MAP,
        links.UNIT_ENDPOINTS_MAP,
        of="life.min-sync life.revert-collapses",
    ),
)

TABLE = (*BALANCING, *CHANGES, *RESTART, *TROUBLE)
