"""Clauses on which endpoints may answer: slices, readiness, termination."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.catalogue.row import DOCS, E2E, KEP, OBSERVED, UNIT, may, must, should

SLICES = (
    must(
        "slices.without-service-name.ignored",
        "An EndpointSlice belongs to the Service its kubernetes.io/service-name label names, or to none.",
        DOCS,
        links.SLICES,
        links.SLICES_KEP,
        of="obj.slice-label",
    ),
    must(
        "slices.headless-label.ignored",
        "An EndpointSlice with the label service.kubernetes.io/headless is not used.",
        DOCS,
        links.LABEL_HEADLESS,
        links.E2E_SERVICE,
        of="obj.headless-label",
    ),
    must(
        "slices.other-family.ignored",
        "A Service is answered in one family by endpoints of slices of that addressType only.",
        KEP,
        links.SLICES_KEP,
        links.DUAL_STACK_KEP,
        of="ds.slice-type ds.no-cross-family ds.both ds.order",
    ),
    must(
        "slices.fqdn.ignored",
        "Slices of addressType FQDN are not used.",
        DOCS,
        links.SLICE_API,
        of="ds.slice-type",
    ),
    must(
        "slices.merged",
        "A Service's endpoints are those of all its slices together.",
        DOCS,
        links.SLICES,
        links.E2E_SLICES,
        of="cip.multi-slice",
    ),
    must(
        "slices.duplicates-are-one-endpoint",
        "The same address and port in several slices is one endpoint.",
        DOCS,
        links.SLICES_DUPLICATES,
        of="cip.multi-slice",
    ),
    must(
        "slices.address-reused.live-endpoint-wins",
        "When one entry of an address and port is terminating and another is not, the one that is not counts.",
        UNIT,
        links.unit_test("endpointslicecache"),
        links.kubernetes_issue(135266),
        of="term.reuse-ip",
    ),
    must(
        "slices.ports.matched-by-name-and-protocol",
        "A service port is answered on the endpoint ports of the same name and protocol.",
        DOCS,
        links.SLICE_API,
        of="proto.key cip.multiport",
    ),
    should(
        "slices.ports.without-name-or-number.skipped",
        "An endpoint port without a name or a number is passed over.",
        OBSERVED,
        links.SLICE_API,
        of="obj.port-nil",
    ),
    must(
        "slices.endpoint.first-address-only",
        "Of an endpoint's addresses only the first counts.",
        DOCS,
        links.SLICE_API,
        of="obj.first-address",
    ),
    must(
        "slices.endpoint.on-node-by-name",
        "An endpoint is on a node if its nodeName says so; without a nodeName it is on none.",
        DOCS,
        links.SLICE_API,
        of="obj.local",
    ),
    must(
        "slices.target-port.per-endpoint",
        "Each endpoint is reached on the port number its own slice gives for the port's name.",
        E2E,
        links.E2E_SERVICE,
        of="cip.targetport.per-endpoint",
    ),
    must(
        "slices.endpoint.host-network.reached",
        "An endpoint may be a node's own address.",
        E2E,
        links.E2E_NETWORKING,
        of="cip.hostnetwork-backend itp.local.hostnet-backend",
    ),
    must(
        "slices.endpoint.outside-cluster.reached",
        "An endpoint written by hand, with no node and no pod, is reached like another.",
        DOCS,
        f"{links.SERVICE}#services-without-selectors",
        of="cip.selectorless",
    ),
)

READINESS = (
    must(
        "endpoints.ready-only",
        "While an endpoint in scope is ready, those that are not get no new connection.",
        DOCS,
        links.TRAFFIC_POLICIES,
        links.UNIT_TOPOLOGY,
        of="ready.only",
    ),
    must(
        "endpoints.conditions.missing-means-ready",
        "A missing condition means ready, serving and not terminating.",
        DOCS,
        links.SLICE_API,
        of="ready.defaults",
    ),
    must(
        "endpoints.ready-flag-trusted",
        "An endpoint marked ready is used even if it is terminating or not serving "
        "(publishNotReadyAddresses).",
        DOCS,
        links.SERVICE_API,
        links.E2E_SERVICE,
        of="ready.publish-not-ready",
    ),
    must(
        "endpoints.not-serving.never-used",
        "An endpoint neither ready nor serving and terminating is never used, even if there is no other.",
        E2E,
        links.E2E_SERVICE,
        links.UNIT_TOPOLOGY,
        of="ready.unready-terminating ready.single-dead",
    ),
    must(
        "endpoints.terminating.used-when-none-ready",
        "When no endpoint of the cluster is ready, those that terminate and still serve get new connections.",
        KEP,
        links.PROXY_TERMINATING_KEP,
        links.E2E_SERVICE,
        of="term.cluster.fallback",
        since="1.28",
    ),
    must(
        "endpoints.terminating.used-when-none-ready-on-node",
        "Under policy Local each node falls back by itself: to its own terminating and serving endpoints "
        "when none of its own is ready.",
        DOCS,
        links.TERMINATING,
        links.E2E_SERVICE,
        of="term.local.fallback term.local.cluster-independent",
        since="1.28",
    ),
    must(
        "endpoints.terminating.not-used-beside-ready",
        "While an endpoint in scope is ready, those that terminate get no new connection.",
        DOCS,
        links.TERMINATING,
        links.UNIT_TOPOLOGY,
        of="term.cluster.prefer-ready",
    ),
    must(
        "endpoints.none.rejected",
        "A service port with no usable endpoint in the cluster is refused at once with ICMP port unreachable.",
        E2E,
        links.E2E_SERVICE,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="noep.cip noep.np noep.vip noep.udp noep.evicted noep.rej-vs-drop eip.noep.external noep.hook",
    ),
    may(
        "endpoints.none.host-to-external-address.either",
        "A process of the node that asks an external address (no address of the node) of a Service without "
        "endpoints is refused, or its packet goes out.",
        OBSERVED,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="eip.noep.from-node noep.vip.from-node",
    ),
)

TABLE = (*SLICES, *READINESS)
