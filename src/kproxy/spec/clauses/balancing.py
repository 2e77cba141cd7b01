"""Clauses of the topic balancing: how connections spread over endpoints."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, KEP, UNIT, must, should

HISTORY = (
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
    must(
        "balancing.retry.refused",
        "A proxy that retries (connectionRetry; no proxy has to) takes a connection that its endpoint refuses to another "
        "endpoint that may answer, and the client sees no failure.",
        UNIT,
        links.USERSPACE_PROXY,
        links.USERSPACE_BALANCER,
        of="cip.retry",
    ),
    must(
        "balancing.retry.unanswered",
        "So does it with a connection that its endpoint does not answer.",
        UNIT,
        links.USERSPACE_PROXY,
        of="cip.retry",
    ),
)
"""Clauses that only several connections, a flow, a change or time can show; the oracle names none of these."""
