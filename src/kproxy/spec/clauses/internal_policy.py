"""Clauses of the topic internal-policy: internalTrafficPolicy."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, KEP, OBSERVED, may, must

PACKET = (
    must(
        "internal-policy.local.same-node",
        "With internalTrafficPolicy Local a cluster IP is answered by endpoints of the sender's node only.",
        DOCS,
        links.INTERNAL_POLICY,
        links.INTERNAL_POLICY_KEP,
        links.E2E_SERVICE,
        of="itp.local itp.local.hostnet-client itp.local.hostnet-backend itp.local.masq-same",
        since="1.26",
    ),
    must(
        "internal-policy.local.drop-without-local-endpoint",
        "With internalTrafficPolicy Local, if there are endpoints but none on the sender's node, "
        "the packet is dropped.",
        DOCS,
        links.INTERNAL_POLICY,
        links.INTERNAL_POLICY_KEP,
        of="itp.local.none noep.rej-vs-drop",
        since="1.26",
    ),
    may(
        "internal-policy.local.only-terminating-elsewhere.either",
        "With internalTrafficPolicy Local, if the only usable endpoints terminate on other nodes, "
        "the packet is dropped or refused.",
        OBSERVED,
        links.UNIT_TOPOLOGY,
        of="itp.local.none",
    ),
    must(
        "internal-policy.external-addresses-exempt",
        "internalTrafficPolicy does not bind node ports, external IPs or load balancer IPs.",
        KEP,
        links.INTERNAL_POLICY_KEP,
        links.kubernetes_issue(106497),
        of="itp.local.not-external etp.itp.independent",
    ),
)
"""Clauses that the outcome of one first packet shows."""
