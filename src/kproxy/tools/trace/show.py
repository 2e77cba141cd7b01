"""Formatter of a `TraceResult`, as text or as JSON.  Pure.

Paths that differ only in the middle, as those to different endpoints do, are shown with their common steps once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import groupby
from typing import Any

from kproxy.linux.netfilter.packet_path import PacketPath
from kproxy.linux.netfilter.packet_state import Effect, TraceStep
from kproxy.linux.netfilter.walk import PathFate
from kproxy.model.network import Address, format_socket
from kproxy.tools.trace.answer import Decision, RelaySocket, TraceResult, step_location
from kproxy.tools.trace.query import ResolvedQuery

MOST_BRANCHES = 6
"""Largest number of branches shown; the JSON has all."""


@dataclass(frozen=True, slots=True)
class ObjectNames:
    """Names from the cluster's objects: ``owner`` of an address, and Service ports with the packet's destination."""

    owner: Callable[[Address], str] = lambda _: ""
    services: tuple[str, ...] = ()


def trace_text(
    answer: TraceResult,
    query: ResolvedQuery,
    read: Sequence[str] = (),
    names: ObjectNames | None = None,
    *,
    rules: bool = True,
) -> str:
    """The result as text; ``rules``: with each rule as its tool prints it."""
    known = names or ObjectNames()
    lines = [_question(query), "", "decision:", *_decisions(answer, known)]
    lines += [f"Service: {_service(answer, known)}", *_relays(answer, known), "", "path:"]
    lines += _tree([[*path.state.steps] for path in answer.paths], "  ", rules=rules)
    lines += ["", "assumed:", *(f"  {one}" for one in _assumed(answer, query))]
    if read:
        lines += ["", "read:", *(f"  {one}" for one in read)]
    return "\n".join(lines) + "\n"


def _question(query: ResolvedQuery) -> str:
    packet = query.packet
    sender = f" ({query.sender})" if query.sender else ""
    target = f" ({query.target})" if query.target else ""
    by = f", in by {packet.interface}" if packet.interface else ""
    to = format_socket(packet.destination, packet.port)
    return f"{packet.protocol.upper()} {packet.source}{sender} -> {to}{target}{by}"


def _service(answer: TraceResult, names: ObjectNames) -> str:
    if answer.services:
        return ", ".join(answer.services)
    if names.services:
        taken = "the rules name none" if answer.taken else "no rule takes the packet"
        return f"{', '.join(names.services)} by the objects; {taken}"
    return "the rules name none" if answer.taken else "none: no rule takes the packet"


def _assumed(answer: TraceResult, query: ResolvedQuery) -> list[str]:
    return ["it is the first packet of a connection (conntrack knows none)", *query.assumed, *answer.assumed]


# ---------------------------------------------------------------------- what becomes of it


def _decisions(answer: TraceResult, names: ObjectNames) -> Iterator[str]:
    for conditions, grouped in groupby(answer.decisions, key=lambda one: sorted(one.conditions)):
        for condition, held in conditions:
            yield f"  if this {'holds' if held else 'does not hold'}: {condition}"
        indent = "    " if conditions else "  "
        yield from (f"{indent}{decision_text(one, names.owner(one.destination))}" for one in grouped)


def decision_text(one: Decision, owner: str = "") -> str:
    """A decision as one line; ``owner``: name of the pod with the destination's address."""
    chance = "" if one.chance == 1 else f"  ({float(one.chance) * 100:.3g} % of connections)"
    by = f", by {one.by}" if one.by else ""
    if one.fate is not PathFate.THROUGH:
        return f"{one.how}{by}{chance}"
    where = (
        "to the node itself" if one.delivered else f"leaves by {one.out}" if one.out else "leaves the node"
    )
    source = f"source masqueraded as {one.masqueraded}" if one.masqueraded else "source kept"
    to = format_socket(one.destination, one.port) + (f" ({owner})" if owner else "")
    if one.translated:
        return f"DNAT to {to}, {source}, {where}{by}{chance}"
    if one.masqueraded:
        return f"destination kept, {source}, {where}{chance}"
    if one.delivered:
        return f"no rule takes it: to the node's own sockets at {to}{chance}"
    return f"no rule takes it: routed on to {to} as it is, {where}{chance}"


def _relays(answer: TraceResult, names: ObjectNames) -> Iterator[str]:
    """The relay's sockets that the packet may come to, each line for one of the processes that have it."""
    if answer.relays:
        yield "relay:"
    for one in answer.relays:
        pool = f", pool {one.pool}" if one.pool else ""
        why = "by ClientIP affinity" if one.bound else "next in turn"
        kept = "source kept" if one.source_kept else "from the node"
        to = _endpoint(one.endpoint, names)
        yield f"  {format_socket(one.destination, one.port)} is its socket of {one.service}{pool}, in {one.process}: {to} {why}, {kept}"
        for endpoint, count in one.open:
            yield f"    open from this client: {count} to {_endpoint(endpoint, names)}"


def _endpoint(endpoint: tuple[str, int], names: ObjectNames) -> str:
    address = ip_address(endpoint[0])
    owner = names.owner(address)
    return format_socket(address, endpoint[1]) + (f" ({owner})" if owner else "")


# ---------------------------------------------------------------------- the path


def _tree(paths: Sequence[list[TraceStep]], indent: str, *, rules: bool) -> Iterator[str]:
    """Lines of steps: the common ones before, the branches, the common ones after."""
    first = _shared(paths)
    yield from _lines(paths[0][:first], indent, rules=rules)
    rest = [path[first:] for path in paths]
    if len(paths) == 1 or not any(rest):
        return
    last = _shared([path[::-1] for path in rest])
    branches: dict[TraceStep | None, list[list[TraceStep]]] = {}
    for path in rest:
        middle = path[: len(path) - last]
        branches.setdefault(middle[0] if middle else None, []).append(middle)
    if len(branches) > 1:
        yield from _branches(list(branches.values()), indent, rules=rules)
        yield from [f"{indent}then:"] if last else []
    yield from _lines(rest[0][len(rest[0]) - last :], indent, rules=rules)


def _branches(branches: Sequence[list[list[TraceStep]]], indent: str, *, rules: bool) -> Iterator[str]:
    for number, held in enumerate(branches):
        if number == MOST_BRANCHES:
            yield f"{indent}... and {len(branches) - MOST_BRANCHES} more (all with -o json)"
            return
        yield f"{indent}or:" if number else f"{indent}either:"
        yield from _tree(held, indent + "  ", rules=rules) if any(held) else [f"{indent}  no rule"]


def _shared(paths: Sequence[list[TraceStep]]) -> int:
    """Number of first steps that all paths share."""
    count = 0
    for steps in zip(*paths, strict=False):
        if any(step != steps[0] for step in steps):
            break
        count += 1
    return count


def _lines(notes: Sequence[TraceStep], indent: str, *, rules: bool) -> Iterator[str]:
    for note in notes:
        yield f"{indent}{step_location(note)}: {note.description}"
        if rules and note.text and note.effect is not Effect.IDLE:
            comment = f"  # {note.comment}" if note.comment and note.comment not in note.text else ""
            yield f"{indent}    {note.text}{comment}"


# ---------------------------------------------------------------------- JSON


def trace_document(
    answer: TraceResult, query: ResolvedQuery, read: Sequence[str] = (), names: ObjectNames | None = None
) -> dict[str, Any]:
    """The result as a JSON document."""
    known = names or ObjectNames()
    packet = query.packet
    return {
        "schema": "kproxy-trace/2",
        "packet": {
            "from": query.sender,
            "source": str(packet.source),
            "to": query.target,
            "destination": str(packet.destination),
            "port": packet.port,
            "protocol": packet.protocol.upper(),
            "interface": packet.interface,
        },
        "decisions": [{**_decision(one), "pod": known.owner(one.destination)} for one in answer.decisions],
        "relays": [_relay(one) for one in answer.relays],
        "services": list(answer.services),
        "servicesOfObjects": list(known.services),
        "paths": [_path(path) for path in answer.paths],
        "assumptions": _assumed(answer, query),
        "inputs": list(read),
    }


def _decision(one: Decision) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "destination": str(one.destination),
        "port": one.port,
        "masqueraded": bool(one.masqueraded),
        "delivered": one.delivered,
        "interface": one.out,
        "probability": float(one.chance),
        "rule": one.by,
        "action": one.how,
        "conditions": _conditions(one.conditions),
    }


def _relay(one: RelaySocket) -> dict[str, Any]:
    address, port = one.endpoint
    return {
        "destination": str(one.destination),
        "port": one.port,
        "process": one.process,
        "service": one.service,
        "pool": one.pool,
        "endpoint": {"address": address, "port": port},
        "bound": one.bound,
        "sourceKept": one.source_kept,
        "open": [{"address": to, "port": number, "count": count} for (to, number), count in one.open],
    }


def _conditions(conditions: frozenset[tuple[str, bool]]) -> list[dict[str, Any]]:
    return [{"condition": condition, "holds": held} for condition, held in sorted(conditions)]


def _path(path: PacketPath) -> dict[str, Any]:
    return {
        "probability": float(path.state.chance),
        "conditions": _conditions(path.state.conditions),
        "steps": [
            {
                "chain": note.chain,
                "rule": note.rule,
                "action": note.description,
                "text": note.text,
                "comment": note.comment,
                "effect": note.effect.value,
            }
            for note in path.state.steps
        ],
    }
