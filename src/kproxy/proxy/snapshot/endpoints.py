"""The endpoints of a Service's ports, merged over its EndpointSlices.

A service port and a slice's port belong together by name and protocol
(``slices.ports.matched-by-name-and-protocol``); a named
target port may be another number in each slice (``slices.target-port.per-endpoint``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kproxy.model import api
from kproxy.model.network import Address, Family, Protocol, parse_address
from kproxy.proxy.snapshot.fields import ReportNote, is_port, note_reporter
from kproxy.proxy.snapshot.values import EndpointInfo, Note

PROTOCOLS: Mapping[str | None, Protocol] = {None: Protocol.TCP, **{p.value: p for p in Protocol}}
"""Protocols by the API's name; an EndpointSlice may omit it, which means TCP."""

PortKey = tuple[str, Protocol]
"""(port name, protocol): identity of a port in a Service and in its slices."""

_Merged = dict[tuple[int, int], EndpointInfo]
"""Endpoints of one port by (address as a number, port)."""

_NO_HINTS: frozenset[str] = frozenset()
_UNCONDITIONAL = api.EndpointConditions()


def merge_endpoints(
    slices: Iterable[api.EndpointSlice], wanted: Collection[PortKey], family: Family, notes: list[Note]
) -> dict[PortKey, tuple[EndpointInfo, ...]]:
    """The endpoints of each wanted port, sorted by address and port, whatever the order of the slices.

    Of several entries for one address and port one is kept, see `_rank` (``slices.merged``,
    ``slices.duplicates-are-one-endpoint``,
    ``slices.address-reused.live-endpoint-wins``).  The slices are of ``family``.
    """
    merged: dict[PortKey, _Merged] = {key: {} for key in wanted}
    for item in slices:
        report = note_reporter(item, notes)
        targets = _targets(item.ports or (), merged, report)
        if targets:
            _add(item.endpoints or (), targets, family, report)
    return {key: tuple(found[place] for place in sorted(found)) for key, found in merged.items()}


def ready_endpoints(
    slices: Collection[api.EndpointSlice], family: Family
) -> frozenset[tuple[str | None, Address]]:
    """Node and address of each ready endpoint, whichever ports the Service has (``health-check.any-port.counted``)."""
    wanted = {
        (port.name, PROTOCOLS[port.protocol])
        for item in slices
        for port in item.ports or ()
        if port.name is not None and port.protocol in PROTOCOLS
    }
    merged = merge_endpoints(slices, wanted, family, notes=[])
    return frozenset(
        (endpoint.node, endpoint.address)
        for endpoints in merged.values()
        for endpoint in endpoints
        if endpoint.ready
    )


def _targets(
    ports: Iterable[api.EndpointPort], merged: Mapping[PortKey, _Merged], report: ReportNote
) -> list[tuple[int, _Merged]]:
    """Port numbers of a slice with the mapping that their endpoints go to; a port without number has none.

    Clause ``slices.ports.without-name-or-number.skipped``.
    """
    targets = []
    for port in ports:
        protocol = PROTOCOLS.get(port.protocol)
        if port.name is None or not port.port or protocol is None:
            continue
        if not is_port(port.port):
            report(f"endpoint port {port.name!r} has no valid number: {port.port}")
        elif (port.name, protocol) in merged:
            targets.append((port.port, merged[port.name, protocol]))
    return targets


def _add(
    items: Iterable[api.Endpoint], targets: list[tuple[int, _Merged]], family: Family, report: ReportNote
) -> None:
    """Add a slice's endpoints to the targets; of several addresses only the first has a meaning.

    Clause ``slices.endpoint.first-address-only``.
    """
    version = 4 if family is Family.IPV4 else 6
    for item in items:
        if not item.addresses:
            continue
        address = parse_address(item.addresses[0])
        if address is None or address.version != version:
            report(f"endpoint {item.addresses[0]!r} is not an {family.value} address")
            continue
        number = int(address)
        for port, found in targets:
            endpoint = _endpoint(item, address, port)
            rival = found.get((number, port))
            if rival is None or _rank(endpoint) > _rank(rival):
                found[number, port] = endpoint


def _endpoint(item: api.Endpoint, address: Address, port: int) -> EndpointInfo:
    # Clause ``endpoints.ready-flag-trusted``.
    conditions, hints = item.conditions or _UNCONDITIONAL, item.hints
    return EndpointInfo(
        address=address,
        port=port,
        node=item.node_name or None,
        ready=conditions.ready is not False,
        serving=conditions.serving is not False,
        terminating=conditions.terminating is True,
        zones=_names(hints.for_zones) if hints else _NO_HINTS,
        nodes=_names(hints.for_nodes) if hints else _NO_HINTS,
    )


def _names(hints: Iterable[api.ForZone] | Iterable[api.ForNode] | None) -> frozenset[str]:
    return frozenset(hint.name for hint in hints) if hints else _NO_HINTS


def _rank(endpoint: EndpointInfo) -> tuple[object, ...]:
    """Sort key of entries for one address and port: the greatest is kept.

    A pod that is not terminating owns its address, one that is has lost it to the other, even if the owner is
    not ready yet. The rest only makes the result independent of order.
    """
    return (
        not endpoint.terminating,
        endpoint.ready,
        endpoint.serving,
        endpoint.node or "",
        sorted(endpoint.nodes),
        sorted(endpoint.zones),
    )
