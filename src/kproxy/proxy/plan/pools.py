"""Pools: the endpoints of a service port that take new connections on this node.

Readiness and termination: KEP-1669 and KEP-1672. Hints: KEP-2433 (zones) and KEP-3015 (nodes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kproxy.proxy import snapshot
from kproxy.proxy.plan.values import Pool, PoolEndpoint, PoolScope

Hints = Callable[[snapshot.EndpointInfo], frozenset[str]]


def cluster_pool(endpoints: Iterable[snapshot.EndpointInfo], node: str, zone: str) -> tuple[Pool, str | None]:
    """Pool for traffic policy Cluster, and the reason if hints were not followed.

    Empty only when no endpoint is usable anywhere (``endpoints.not-serving.never-used``).

    Clauses ``endpoints.ready-only``, ``endpoints.terminating.used-when-none-ready``,
    ``endpoints.terminating.not-used-beside-ready``, ``topology.unready-hints-ignored``.
    """
    endpoints = tuple(endpoints)
    ready = [endpoint for endpoint in endpoints if endpoint.ready]
    if not ready:
        return _pool(PoolScope.CLUSTER, filter(_is_serving_terminating, endpoints), node), None
    near, reason = _closest(ready, node, zone)
    return _pool(PoolScope.CLUSTER, near, node), reason


def local_pool(endpoints: Iterable[snapshot.EndpointInfo], node: str) -> Pool:
    """Pool for traffic policy Local: this node's own endpoints.

    Without a ready one, those that terminate (``endpoints.terminating.used-when-none-ready-on-node``).

    Hints do not matter here (``topology.local-policy.hints-ignored``).

    Clause ``slices.endpoint.on-node-by-name``.
    """
    own = [endpoint for endpoint in endpoints if endpoint.node == node]
    ready = [endpoint for endpoint in own if endpoint.ready]
    return _pool(PoolScope.LOCAL, ready or filter(_is_serving_terminating, own), node)


def serving_endpoints(endpoints: Iterable[snapshot.EndpointInfo], node: str) -> tuple[PoolEndpoint, ...]:
    """Every endpoint that serves existing flows, whether or not new connections may choose it."""
    return _endpoints((endpoint for endpoint in endpoints if endpoint.serving or endpoint.ready), node)


def _is_serving_terminating(endpoint: snapshot.EndpointInfo) -> bool:
    """True for an endpoint that terminates but still serves: used only when no endpoint is ready."""
    return endpoint.serving and endpoint.terminating


def _pool(scope: PoolScope, chosen: Iterable[snapshot.EndpointInfo], node: str) -> Pool:
    return Pool(scope, _endpoints(chosen, node))


def _endpoints(chosen: Iterable[snapshot.EndpointInfo], node: str) -> tuple[PoolEndpoint, ...]:
    return tuple([PoolEndpoint(e.address, e.port, not e.node or e.node == node) for e in chosen])


def _closest(
    ready: list[snapshot.EndpointInfo], node: str, zone: str
) -> tuple[list[snapshot.EndpointInfo], str | None]:
    """Endpoints hinted for this node, else for its zone, else all; and a reason to note.

    Clauses ``topology.same-node``, ``topology.same-zone``.

    Clauses ``topology.no-node-match.zone-decides``, ``topology.no-match.all-endpoints``,
    ``topology.no-zone-label.all-endpoints``.
    """
    if not any(endpoint.nodes or endpoint.zones for endpoint in ready):
        return ready, None
    same_node, why_not_node = _hinted(ready, _nodes, node, "node")
    if same_node:
        return same_node, None
    same_zone, why_not_zone = _hinted(ready, _zones, zone, "zone")
    return same_zone or ready, why_not_node or (None if same_zone else why_not_zone)


def _nodes(endpoint: snapshot.EndpointInfo) -> frozenset[str]:
    return endpoint.nodes


def _zones(endpoint: snapshot.EndpointInfo) -> frozenset[str]:
    return endpoint.zones


def _hinted(
    ready: list[snapshot.EndpointInfo], hints: Hints, here: str, kind: str
) -> tuple[list[snapshot.EndpointInfo], str | None]:
    """Endpoints hinted for ``here``, or none and the reason, if it is worth a note.

    One endpoint without the hint makes the hints of its kind void (``topology.missing-hint.all-endpoints``).

    Clause ``topology.several-zones-in-hint``.
    """
    if not any(map(hints, ready)):
        return [], None
    if not here:
        return [], f"{kind} hints are ignored: this node's {kind} is unknown"
    chosen = [endpoint for endpoint in ready if here in hints(endpoint)]
    if chosen and not all(map(hints, ready)):
        return [], f"{kind} hints are ignored: not all endpoints have one"
    return chosen, None
