"""Clauses of the topic health: health check node ports for load balancers, and the proxy's own health."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, E2E, KEP, OBSERVED, UNIT, must, should

HISTORY = (
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
        "health-check.any-port.counted",
        "A health check node port counts the ready endpoints of all of the Service's EndpointSlices, also while their ports "
        "are not yet, or no longer, those of the Service.",
        OBSERVED,
        links.SOURCE_ENDPOINTS_MAP,
        of="hcnp.count-ips",
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
        "health-check.port-in-use.tried-again",
        "A health check node port that another program of the node has is opened soon after that program lets it go; nothing "
        "else of the Service waits for it, nor do those of others.",
        OBSERVED,
        links.SOURCE_HEALTH,
        of="hcnp.bind-fail",
    ),
    should(
        "health-check.number.told",
        "A health check node port reports as JSON how many ready endpoints its node has, each address once.",
        UNIT,
        links.UNIT_HEALTH,
        of="hcnp.payload hcnp.count-ips",
    ),
    should(
        "health-check.weight.told",
        "A health check node port reports the number of endpoints in the header "
        "X-Load-Balancing-Endpoint-Weight too.",
        UNIT,
        links.UNIT_HEALTH,
        links.kubernetes_issue(118999),
        of="hcnp.headers",
    ),
    should(
        "health-check.any-path.answered",
        "A health check node port answers requests for every path.",
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
        "That its node is about to be removed does not change what a health check node port reports.",
        KEP,
        links.DRAINING_KEP,
        links.UNIT_HEALTH,
        of="hcnp.no-taint",
    ),
    must(
        "proxy-health.told",
        "A node's proxy answers 200 to /healthz and /livez at port 10256 of the node while it keeps up with "
        "changes, however long none comes.",
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
        of="hz.stale ds.independent-sync",
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
"""Clauses that only several connections, a flow, a change or time can show; the oracle names none of these."""
