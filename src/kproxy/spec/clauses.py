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

__all__ = ["CLAUSES", "TRANSITION_CLAUSES", "Authority", "Clause", "ClauseId", "Clauses", "Level", "clause"]

PACKET_TABLE = (*inside.TABLE, *outside.TABLE, *endpoints.TABLE, *policies.TABLE, *sources.TABLE)
"""Clauses that the outcome of one first packet shows."""

HISTORY_TABLE = (*changes.TABLE, *flows.TABLE, *wire.TABLE)
"""Clauses that only several connections, a flow, a change or time can show."""

CLAUSES: Clauses = MappingProxyType({row.id: row for row in (*PACKET_TABLE, *HISTORY_TABLE)})
"""Every clause by its ID."""

TRANSITION_CLAUSES: frozenset[ClauseId] = frozenset(row.id for row in HISTORY_TABLE)
"""What only histories can judge: the oracle names none of these."""


def clause(id: str) -> ClauseId:
    """The ID, checked to be of a clause.

    Raises `KeyError` when there is no such clause.
    """
    return CLAUSES[ClauseId(id)].id
