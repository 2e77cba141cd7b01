"""What a clause of the specification is, and where its authority may come from.

Types only; the clauses themselves are in `kproxy.spec.catalogue`.  Opens nothing.
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
    """Who says so, strongest first."""

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
