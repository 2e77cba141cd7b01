"""Clauses of the topic external-ip: connections to external IPs, and to ports of external addresses that no Service defines."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, KEP, OBSERVED, UNIT, must, should

PACKET = (
    must(
        "external-ip.reaches-ready-endpoint",
        "A connection to an external IP and service port that arrives at or leaves a node reaches "
        "a usable endpoint, whether or not the node has that address.",
        DOCS,
        links.SERVICE_EXTERNAL_IPS,
        links.E2E_SERVICE,
        of="eip.basic",
    ),
    must(
        "external-ip.disabled.untouched",
        "With the feature gate AllowServiceExternalIPs off, external IPs are not served.",
        KEP,
        links.EXTERNAL_IPS_KEP,
        links.FEATURE_GATES,
        of="eip.gate",
        since="1.36",
    ),
    must(
        "external-ip.bad-text.skipped",
        "An external IP that is no address, or of a family the Service does not have, is passed over "
        "and the Service's other addresses are served.",
        UNIT,
        links.UNIT_SERVICE_MAP,
        links.kubernetes_issue(73157),
        of="eip.invalid",
    ),
    must(
        "external-address.undefined-port.not-served",
        "A port that the Service does not define on an external IP or load balancer IP reaches no endpoint.",
        DOCS,
        links.SERVICE_EXTERNAL_IPS,
        links.kubernetes_issue(22952),
        of="undef.vip-port eip.port",
    ),
    should(
        "external-ip.node-address.node-in-reach",
        "A Service at a node's own address takes its port alone: the node's other ports are in reach from everywhere.",
        OBSERVED,
        links.kubernetes_issue(75290),
        links.kubernetes_issue(114815),
        of="eip.is-node-ip lb.vip-local-nodeport",
    ),
)
"""Clauses that the outcome of one first packet shows."""
