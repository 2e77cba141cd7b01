"""Profiles: the part of the catalogue that every service proxy keeps (core), and one part for each further feature.  Pure.

After Gateway API's conformance profiles: a verdict that others can cite is short, such as ``core: passed 172/172; extended:
sessionAffinity, SCTP``.  A result counts for what was seen: a known deviation is not passed, and a case that was not run is missing.

https://gateway-api.sigs.k8s.io/concepts/conformance/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kproxy.conformance.case import Case, Feature
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.results import Result
from kproxy.conformance.reports.results_reader import ResultRead, RunRead
from kproxy.spec.clause import Level
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.outcome import ClauseId

CORE_FEATURES = frozenset(
    {
        Feature.NODE_PORT,
        Feature.EXTERNAL_IPS,
        Feature.LOAD_BALANCER,
        Feature.INTERNAL_TRAFFIC_POLICY,
        Feature.EXTERNAL_TRAFFIC_POLICY,
    }
)
"""Features of the core profile: addresses and policies of a Service, which every bundled subject claims in every mode."""

OUTSIDE_CORE: Mapping[str, str] = {
    "node-port.node-sends-from-its-number": "IPVS cannot keep it: its virtual server takes the answers",
    "masquerade.marks-of-others": "a relay in user space cannot: its own connection has no mark of the client",
    "masquerade.bit-is-configured": "a relay in user space cannot: its own connection has no mark of the client",
    "icmp.refusal-by-the-endpoint": "a relay in user space cannot: an endpoint refuses its datagram, not the client's",
    "convergence.changes-are-in-effect-soon": "it measures time, which an emulated kernel does not have",
}
"""Cases of core features that not every mode can keep, or not every kernel of the lab can run; each with the reason."""


def is_core(case: Case) -> bool:
    """True for a case of the core profile: it cites a MUST, needs core features only, and all modes can keep it."""
    return (
        not case.slow
        and case.id not in OUTSIDE_CORE
        and case.features <= CORE_FEATURES
        and any(CLAUSES[ClauseId(name)].level is Level.MUST for name in case.clauses)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileVerdict:
    """Verdict on a run: IDs of core cases by how they went, and extended features by how theirs did.

    ``incomplete``: features of which a case was not run, or could not be.
    """

    passed: tuple[str, ...]
    failed: tuple[str, ...]
    missing: tuple[str, ...]
    supported: tuple[str, ...]
    unlawful: tuple[str, ...]
    incomplete: tuple[str, ...]
    unsupported: tuple[str, ...]

    @property
    def total(self) -> int:
        """Number of core cases."""
        return len(self.passed) + len(self.failed) + len(self.missing)

    @property
    def word(self) -> str:
        """One word for core: passed, failed, or partial when nothing failed and something was not seen."""
        if self.failed:
            return "failed"
        return "partial" if self.missing else "passed"

    def __str__(self) -> str:
        """The verdict in one line."""
        text = f"core: {self.word} {len(self.passed)}/{self.total}"
        return text + (f"; extended: {', '.join(self.supported)}" if self.supported else "")

    def document(self) -> dict[str, Any]:
        """The verdict as JSON."""
        core = {"result": self.word, "passed": len(self.passed), "total": self.total}
        parts = {"failed": self.failed, "missing": self.missing}
        extended = {
            "supported": self.supported,
            "failed": self.unlawful,
            "incomplete": self.incomplete,
            "unsupported": self.unsupported,
        }
        return {
            "core": core | {name: list(ids) for name, ids in parts.items() if ids},
            "extended": {name: list(features) for name, features in extended.items() if features},
        }


def judge_profiles(run: RunRead, catalogue: Iterable[Case] = CATALOGUE) -> ProfileVerdict:
    """The verdict on a run of the catalogue."""
    results = {entry.id: entry for entry in run.results}
    cases = [case for case in catalogue if not case.slow]
    core = {case.id: _outcome(results.get(case.id)) for case in cases if is_core(case)}
    features = {
        feature.value: _feature_outcome(results.get(case.id) for case in cases if feature in case.features)
        for feature in Feature
        if feature not in CORE_FEATURES
    }
    return ProfileVerdict(
        passed=_named(core, "passed"),
        failed=_named(core, "failed"),
        missing=_named(core, "missing"),
        supported=_named(features, "passed"),
        unlawful=_named(features, "failed"),
        incomplete=_named(features, "missing"),
        unsupported=_named(features, "unsupported"),
    )


def _named(outcomes: Mapping[str, str], outcome: str) -> tuple[str, ...]:
    return tuple(sorted(name for name, found in outcomes.items() if found == outcome))


def _outcome(entry: ResultRead | None) -> str:
    """How a case went; a core case whose feature is not claimed is missing."""
    if entry is None or entry.result in {Result.NOT_RUNNABLE, Result.BROKEN, Result.UNSUPPORTED}:
        return "missing"
    return "passed" if entry.result is Result.PASSED else "failed"


def _feature_outcome(entries: Iterable[ResultRead | None]) -> str:
    """How the cases of a feature went; those that are not claimed for another feature's sake do not count."""
    kept = [entry for entry in entries if entry is None or entry.result is not Result.UNSUPPORTED]
    if not kept:
        return "unsupported"
    found = set(map(_outcome, kept))
    return next(outcome for outcome in ("failed", "missing", "passed") if outcome in found)
