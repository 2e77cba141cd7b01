"""Mutants of topology hints."""

from __future__ import annotations

from typing import Any

import msgspec

from kproxy.proxy import snapshot
from tests.mutants.mutant import Function, Patch, instead, mutant
from tests.mutants.patches.settings import Ends


def _every_ready_one(ready: list[snapshot.EndpointInfo], _node: str, _zone: str) -> Any:  # noqa: ANN401
    return ready, None


def _only_hinted(nearest: Function) -> Function:
    """Endpoints hinted for other zones are never used, even if no other endpoint is left."""

    def strict(ready: list[snapshot.EndpointInfo], node: str, zone: str) -> Any:  # noqa: ANN401
        zones = [endpoint for endpoint in ready if endpoint.zones]
        if zones and not any(zone in endpoint.zones for endpoint in zones):
            return [], None
        return nearest(ready, node, zone)

    return strict


def _hints_that_are_there(hinted: Function) -> Function:
    """Hints count although an endpoint without a hint exists."""
    return lambda ready, hints, *of: hinted([e for e in ready if hints(e)] or ready, hints, *of)


def _no_node_hints(hinted: Function) -> Function:
    return lambda ready, hints, here, kind: ([], None) if kind == "node" else hinted(ready, hints, here, kind)


def _unready_hints_count(cluster_pool: Function) -> Function:
    """An endpoint that is not ready and has no hint disables the hints of the others."""

    def pool(endpoints: Ends, *of: Any) -> Any:  # noqa: ANN401
        found = tuple(endpoints)
        if not all(endpoint.zones or endpoint.nodes for endpoint in found):
            bare: dict[str, Any] = {"zones": frozenset(), "nodes": frozenset()}
            found = tuple(msgspec.structs.replace(endpoint, **bare) for endpoint in found)
        return cluster_pool(found, *of)

    return pool


MUTANTS = (
    mutant(
        "topology.hints-ignored",
        "Hints are not followed.",
        Patch("kproxy.proxy.plan.pools:_closest", instead(_every_ready_one)),
        clauses="topology.same-zone topology.same-node",
    ),
    mutant(
        "topology.node-hints-ignored",
        "Hints for nodes are not followed.",
        Patch("kproxy.proxy.plan.pools:_hinted", _no_node_hints),
        clauses="topology.same-node",
    ),
    mutant(
        "topology.missing-hint-tolerated",
        "Hints are followed though an endpoint has none.",
        Patch("kproxy.proxy.plan.pools:_hinted", _hints_that_are_there),
        clauses="topology.missing-hint.all-endpoints",
    ),
    mutant(
        "topology.unready-hints-count",
        "An endpoint that is not ready and has no hint makes the others' void.",
        Patch("kproxy.proxy.plan.frontends:cluster_pool", _unready_hints_count),
        clauses="topology.unready-hints-ignored",
    ),
    mutant(
        "topology.no-match-nobody",
        "Where no hint names the zone no endpoint answers.",
        Patch("kproxy.proxy.plan.pools:_closest", _only_hinted),
        clauses="topology.no-match.all-endpoints",
    ),
)
