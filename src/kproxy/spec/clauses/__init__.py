"""Every promise of a Service, clause by clause; data only.

A module for each topic of `kproxy.spec.topics` with its clauses: each has an ID, a level, a sentence, an
authority and links.  An ID is terms, the area first; it is never reused for another promise.
`kproxy.spec.oracle` names clauses in its answers, and conformance cases name those they hold a subject to.
"""

from __future__ import annotations

from types import MappingProxyType

from kproxy.spec.clause import Authority, Clause, Clauses, Level
from kproxy.spec.clauses import (
    affinity,
    balancing,
    change,
    cluster_ip,
    conntrack,
    detect_local,
    endpoints,
    external_ip,
    external_policy,
    health,
    icmp,
    internal_policy,
    load_balancer,
    masquerade,
    node_port,
    objects,
    protocol,
    restart,
    source_ranges,
    topology,
    watch,
    writes,
)
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

PACKET_TABLE = (
    *objects.PACKET,
    *cluster_ip.PACKET,
    *node_port.PACKET,
    *external_ip.PACKET,
    *load_balancer.PACKET,
    *source_ranges.PACKET,
    *endpoints.PACKET,
    *internal_policy.PACKET,
    *external_policy.PACKET,
    *topology.PACKET,
    *masquerade.PACKET,
    *detect_local.PACKET,
    *protocol.PACKET,
)
"""Clauses that the outcome of one first packet shows."""

HISTORY_TABLE = (
    *balancing.HISTORY,
    *change.HISTORY,
    *restart.HISTORY,
    *writes.HISTORY,
    *watch.HISTORY,
    *conntrack.HISTORY,
    *affinity.HISTORY,
    *icmp.HISTORY,
    *masquerade.HISTORY,
    *node_port.HISTORY,
    *health.HISTORY,
    *protocol.HISTORY,
)
"""Clauses that only several connections, a flow, a change or time can show."""

CLAUSES: Clauses = MappingProxyType({row.id: row for row in (*PACKET_TABLE, *HISTORY_TABLE)})
"""Every clause by its ID."""

TRANSITION_CLAUSES: frozenset[ClauseId] = frozenset(row.id for row in HISTORY_TABLE)
"""IDs of clauses that only histories can judge: the oracle names none of these."""

SOURCE_ONLY_CLAUSES: frozenset[ClauseId] = frozenset(row.id for row in masquerade.PACKET)
"""Clauses on the source that an endpoint sees, and on nothing else."""

SOURCE_CLAUSES: frozenset[ClauseId] = SOURCE_ONLY_CLAUSES.union(
    (row.id for row in detect_local.PACKET),
    (
        ClauseId("external-policy.local.local-endpoints-source-preserved"),
        ClauseId("external-policy.local.pods-reach-all-endpoints"),
        ClauseId("external-policy.local.host-reaches-all-endpoints"),
    ),
)
"""Clauses on the source that an endpoint sees."""


def clause(id: str) -> ClauseId:
    """The ID, checked to be of a clause.

    Raises `KeyError` when there is no such clause.
    """
    return CLAUSES[ClauseId(id)].id
