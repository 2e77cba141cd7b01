"""Provenance of results: who made the proxy, when it was judged, by which catalogue; and a digest of the whole.  Pure.

The digest finds what was changed by mistake, by a tool or by hand; it is no signature, since anybody can compute it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from kproxy import __version__
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.profiles import judge_profiles
from kproxy.conformance.reports.results_document import Json, catalogue_document, format_document
from kproxy.conformance.reports.results_reader import parse_results
from kproxy.conformance.subjects.subject import Subject

DIGEST = "digest"


def sealed(document: Json, subject: Subject, at: datetime) -> Json:
    """Results with their provenance and verdicts, and the digest of all of it; ``at``: when the run ended."""
    runs = parse_results(format_document(document), "this run").runs
    versions = [version for run in runs if (version := run.environment.get("subject"))]
    about = subject.implementation
    implementation = {
        "project": about.project or subject.name,
        "url": about.url,
        "version": about.version or next(iter(versions), ""),
        "contact": about.contact,
    }
    first = {
        "format": document["format"],
        "date": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "implementation": {name: text for name, text in implementation.items() if text},
        "catalogue": catalogue_facts(),
        "profiles": {run.name or run.mode: judge_profiles(run).document() for run in runs},
    }
    whole = first | {name: value for name, value in document.items() if name not in first}
    return whole | {DIGEST: document_digest(whole)}


def catalogue_facts() -> dict[str, Any]:
    """The catalogue of this kproxy: its release, its size in cases, and the digest of their IDs, clauses and steps."""
    document = catalogue_document(CATALOGUE)
    return {"kproxy": __version__, "size": len(document["cases"]), DIGEST: document_digest(document)}


def document_digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of a document without its digest, in canonical form: fields sorted by name, no spaces."""
    rest = {name: value for name, value in document.items() if name != DIGEST}
    return f"sha256:{hashlib.sha256(msgspec.json.encode(rest, order='sorted')).hexdigest()}"
