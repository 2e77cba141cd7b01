"""Text of matches, elements and destinations for a walk.  Pure."""

from __future__ import annotations

from msgspec.structs import replace

from kproxy.linux.netfilter.packet_state import Effect, PacketState, TracedPacket
from kproxy.linux.netfilter.patterns import FieldOf, Masked, Pattern, Span, UnmodelledField
from kproxy.linux.netfilter.rules import (
    Dnat,
    Element,
    End,
    Goto,
    InSet,
    Is,
    Jump,
    MapLookup,
    Match,
    Recent,
    Rule,
    SetMark,
    Unknown,
    Unmodelled,
)
from kproxy.model.network import format_socket


def format_destination(step: Dnat, packet: TracedPacket) -> str:
    """Where DNAT sends; of a range all of it."""
    if isinstance(step.address, Span) or isinstance(step.port, Span):
        return f"{_part(step.address) or packet.destination} port {_part(step.port) or packet.port}, any of these"
    return format_socket(packet.destination, packet.port)


def format_range(step: Dnat) -> str:
    """Addresses and ports of which one is taken."""
    return " port ".join(part for part in (_part(step.address), _part(step.port)) if part)


def _part(value: object) -> str:
    return f"{value.first}-{value.last}" if isinstance(value, Span) else "" if value is None else str(value)


def describe_match(match: Match, place: str, rule: Rule) -> str:
    """A match that is not known, and where it stands."""
    match match:
        case Unknown(text):
            what = f"unknown match `{text}`"
        case InSet(_, name):
            what = f"set {name}, which is not in what was read"
        case Recent(name):
            what = f"list {name} has the client, which may have been too long ago"
        case Is(key):
            plain = [one.field if isinstance(one, FieldOf | Masked) else one for one in key]
            unread = [one.text for one in plain if isinstance(one, UnmodelledField)]
            names = unread or [getattr(one, "value", str(one)) for one in plain]
            what = f"what is not known: {', '.join(names)}"
        case _:
            what = "chance"
    return f"{what} ({place} {rule.label}: {rule.text})"


def describe_unseen_client(match: Recent, state: PacketState) -> str:
    """The assumption about session affinity."""
    seconds = f" in the last {match.seconds} s" if match.seconds else ""
    return f"no list of the `recent` match (session affinity) has {state.packet.source}{seconds}"


def describe_element(step: MapLookup, found: Element) -> str:
    """The element of a map that was found for the packet."""
    where = f"map {step.name}" if step.name else "the map in the rule"
    return f"{where} has {format_key(found.key)} : {format_data(found)}"


def format_key(pattern: tuple[Pattern, ...]) -> str:
    """An element's key as nft writes it."""
    return " . ".join(_pattern(part) for part in pattern)


def _pattern(pattern: Pattern) -> str:
    return f"{pattern.first}-{pattern.last}" if isinstance(pattern, Span) else str(pattern)


def format_data(found: Element) -> str:
    """The data of an element as nft writes it."""
    match found.data:
        case Jump(name):
            return f"jump {name}"
        case Goto(name):
            return f"goto {name}"
        case End() as end:
            return end.name.lower()
        case Dnat(address, port):
            return f"{_part(address)} . {_part(port)}" if port else _part(address)
        case SetMark(_, flip):
            return f"mark {flip:#x}"
        case Unmodelled(text):
            return text
        case None:
            return ""


def redescribed(state: PacketState, at: int, description: str) -> PacketState:
    """Replaces the description of one step of the way."""
    if at >= len(state.steps):
        return state
    notes = list(state.steps)
    quiet = ", without effect" if notes[at].effect is Effect.IDLE else ""
    notes[at] = replace(notes[at], description=f"{description}{quiet}")
    return replace(state, steps=tuple(notes))
