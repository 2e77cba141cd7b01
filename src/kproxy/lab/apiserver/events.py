"""Conversion between the two forms of an Event: ``events.k8s.io/v1`` (as stored) and core ``v1``.

They are one object in a cluster, whichever API wrote it. Pure.

Field pairs: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

from typing import Any

_STORED_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_TO_STORED = {core: stored for stored, core in _STORED_TO_CORE.items()}


def to_core_event(document: dict[str, Any]) -> dict[str, Any]:
    """An ``events.k8s.io/v1`` Event with core ``v1`` field names."""
    return {_STORED_TO_CORE.get(key, key): value for key, value in document.items()}


def from_core_event(document: dict[str, Any]) -> dict[str, Any]:
    """A core ``v1`` Event with ``events.k8s.io/v1`` field names."""
    return {_CORE_TO_STORED.get(key, key): value for key, value in document.items()}
