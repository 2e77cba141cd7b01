"""Evaluation of a match for a packet: it holds, it does not, or that is not known.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kproxy.linux.netfilter.node_state import TracedNode
from kproxy.linux.netfilter.packet_state import FieldAbsent, PacketState, read_selector
from kproxy.linux.netfilter.patterns import RandomNumber, Selector, Value, fits
from kproxy.linux.netfilter.rules import Collection, InSet, Is, Match, Recent


def match_holds(
    match: Match, state: PacketState, node: TracedNode, sets: Mapping[str, Collection]
) -> bool | None:
    """None: it is not modelled, or depends on what is not known.  `Chance` is not evaluated here."""
    try:
        if isinstance(match, Is):
            found = _is(match.key, match.pattern, state, node)
        elif isinstance(match, InSet):
            found = _in_set(match.key, match.inline or sets.get(match.name), state, node)
        elif isinstance(match, Recent):
            found = _is_client(match.name, state, node)
        else:
            return None
    except FieldAbsent:
        return False
    return None if found is None else found is not match.negated


def _is_client(name: str, state: PacketState, node: TracedNode) -> bool | None:
    """Of one who is in the list it is not known since when, but of what is remembered."""
    if node.remembered is not None:
        return (name, (state.packet.source,)) in node.remembered
    return None if state.packet.source in (node.clients or {}).get(name, ()) else False


def _is(
    key: tuple[Selector, ...], pattern: tuple[object, ...], state: PacketState, node: TracedNode
) -> bool | None:
    """Each selector against its pattern: no if one is no, else not known if one is not."""
    if len(key) == 1:
        value = read_selector(key[0], state, node)
        return None if value is None else fits(pattern[0], value)  # type: ignore[arg-type]
    answers: list[bool | None] = []
    for selector, wanted in zip(key, pattern, strict=False):
        value = read_selector(selector, state, node)
        answers.append(None if value is None else fits(wanted, value))  # type: ignore[arg-type]
    return False if False in answers else None if None in answers else True


def _in_set(
    key: tuple[Selector, ...], which: Collection | None, state: PacketState, node: TracedNode
) -> bool | None:
    if which is None:
        return None
    values = next(selector_keys(key, state, node))
    if values is None:
        return None
    if node.remembered and (which.name, values) in node.remembered:
        return True
    found = which.find(values)
    if found is None:
        return False if which.whole else None
    return not found.excluded


def selector_keys(
    key: tuple[Selector, ...], state: PacketState, node: TracedNode
) -> Iterator[tuple[Value, ...] | None]:
    """The values that the selectors read, once for each number that may be drawn; None: not known.  Raises `FieldAbsent`."""
    drawn = next((one for one in key if isinstance(one, RandomNumber)), None)
    read_values = [None if isinstance(one, RandomNumber) else read_selector(one, state, node) for one in key]
    if any(
        value is None and not isinstance(one, RandomNumber)
        for one, value in zip(key, read_values, strict=True)
    ):
        yield None
        return
    for number in range(drawn.modulus if drawn else 1):
        yield tuple(
            (one.offset + number) % (1 << 32) if isinstance(one, RandomNumber) else value  # type: ignore[misc]
            for one, value in zip(key, read_values, strict=True)
        )
