"""Clauses of the topic watch: watches that break, and events that come together."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, UNIT, must

HISTORY = (
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
"""Clauses that only several connections, a flow, a change or time can show; the oracle names none of these."""
