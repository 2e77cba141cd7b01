"""A clause of the specification: its type, and the calls that `kproxy.spec.clauses` writes clauses down with.

One call is one clause, one tuple one table.  Opens nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from kproxy.spec.outcome import ClauseId


class Level(enum.Enum):
    """How much a clause binds, in the sense of RFC 2119."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"


class Authority(enum.Enum):
    """Kinds of source, strongest first."""

    API_DOCS = "Kubernetes API and user documentation"
    KEP = "Kubernetes enhancement proposal"
    UPSTREAM_E2E = "upstream end-to-end test"
    UPSTREAM_UNIT_TEST = "upstream unit test"
    OBSERVED = "observed: kube-proxy 1.36"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One promise of a Service, in one sentence.

    ``behaviours`` are IDs of the catalogue of observed behaviours that the clause sums up;
    ``since`` and ``until`` are Kubernetes minor versions, empty when it always held or still holds.
    """

    id: ClauseId
    level: Level
    text: str
    authority: Authority
    source: tuple[str, ...]
    behaviours: tuple[str, ...]
    since: str = ""
    until: str = ""


Clauses = Mapping[ClauseId, Clause]

DOCS = Authority.API_DOCS
KEP = Authority.KEP
E2E = Authority.UPSTREAM_E2E
UNIT = Authority.UPSTREAM_UNIT_TEST
OBSERVED = Authority.OBSERVED


def must(id: str, text: str, authority: Authority, *source: str, of: str, since: str = "") -> Clause:
    """A clause that binds; ``of`` lists behaviour IDs, separated by blanks."""
    return _clause(Level.MUST, id, text, authority, source, of, since)


def should(id: str, text: str, authority: Authority, *source: str, of: str, since: str = "") -> Clause:
    """A clause that a proxy needs a reason to depart from."""
    return _clause(Level.SHOULD, id, text, authority, source, of, since)


def may(id: str, text: str, authority: Authority, *source: str, of: str, since: str = "") -> Clause:
    """A clause that leaves several answers open, all of them lawful."""
    return _clause(Level.MAY, id, text, authority, source, of, since)


def _clause(  # noqa: PLR0913, PLR0917  (one parameter for each field)
    level: Level, id: str, text: str, authority: Authority, source: tuple[str, ...], of: str, since: str
) -> Clause:
    return Clause(
        id=ClauseId(id),
        level=level,
        text=text,
        authority=authority,
        source=source,
        behaviours=tuple(of.split()),
        since=since,
    )
