"""What a Service promises, clause by clause; data only.

An ID is words, the area first; it is never reused for another promise.  The clauses stand in
`kproxy.spec.catalogue`, each with its level, sentence, authority and links; `kproxy.spec.oracle`
names them in its answers, and conformance cases name those they hold a subject to.
"""

from __future__ import annotations

from types import MappingProxyType

from kproxy.spec.catalogue import changes, endpoints, flows, inside, outside, policies, sources, wire
from kproxy.spec.clause import Authority, Clause, Clauses, Level
from kproxy.spec.outcome import ClauseId

__all__ = [
    "CLAUSES",
    "SOURCE_CLAUSES",
    "SOURCE_ONLY_CLAUSES",
    "TRANSITION_CLAUSES",
    "Authority",
    "Clause",
    "ClauseId",
    "Clauses",
    "Level",
    "clause",
]

PACKET_TABLE = (*inside.TABLE, *outside.TABLE, *endpoints.TABLE, *policies.TABLE, *sources.TABLE)
"""Clauses that the outcome of one first packet shows."""

TRANSITION_TABLE = (*changes.TABLE, *flows.TABLE, *wire.TABLE)
"""Clauses that only several connections, a flow, a change or time can show."""

CLAUSES: Clauses = MappingProxyType({row.id: row for row in (*PACKET_TABLE, *TRANSITION_TABLE)})
"""Every clause by its ID."""

TRANSITION_CLAUSES: frozenset[ClauseId] = frozenset(row.id for row in TRANSITION_TABLE)
"""What only histories can judge: the oracle names none of these."""

SOURCE_ONLY_CLAUSES: frozenset[ClauseId] = frozenset(row.id for row in sources.MASQUERADE)
"""What says which source an endpoint sees, and nothing of which endpoint it is."""

SOURCE_CLAUSES: frozenset[ClauseId] = SOURCE_ONLY_CLAUSES.union(
    (row.id for row in sources.DETECT_LOCAL),
    (
        ClauseId("external-policy.local.local-endpoints-source-preserved"),
        ClauseId("external-policy.local.pods-reach-all-endpoints"),
        ClauseId("external-policy.local.host-reaches-all-endpoints"),
    ),
)
"""What says which source an endpoint sees."""


def clause(id: str) -> ClauseId:
    """The ID, checked to be of a clause.

    Raises `KeyError` when there is no such clause.
    """
    return CLAUSES[ClauseId(id)].id
