"""The marks of a packet and of its connection; None: not known.  Pure.

Without a connection there is no mark of one to change, or to take.
"""

from __future__ import annotations

from collections.abc import Mapping

from kproxy.linux.netfilter.matching import selector_keys
from kproxy.linux.netfilter.node_state import TracedNode
from kproxy.linux.netfilter.packet_state import PacketState, Tracking
from kproxy.linux.netfilter.rules import Collection, CopyMark, LoseMark, MapMark, SetMark

Marks = tuple[int | None, int | None]


def changed_marks(
    step: SetMark | CopyMark | MapMark | LoseMark,
    state: PacketState,
    node: TracedNode,
    sets: Mapping[str, Collection],
) -> Marks:
    """Both marks after a statement."""
    mark, connection = state.mark, state.connection_mark
    tracked = state.tracked is Tracking.YES
    match step:
        case SetMark(keep, flip, True):
            return mark, _flipped(connection, keep, flip) if tracked else connection
        case SetMark(keep, flip):
            return _flipped(mark, keep, flip), connection
        case CopyMark(keep, taken, True):
            return mark, _flipped(connection, keep, _bits(mark, taken)) if tracked else connection
        case CopyMark(keep, taken):
            return _flipped(mark, keep, _bits(connection, taken)) if tracked else mark, connection
        case LoseMark(_, of_connection):
            return (mark, None) if of_connection else (None, connection)
        case MapMark():
            return _mapped(step, state, node, sets), connection


def _mapped(
    step: MapMark, state: PacketState, node: TracedNode, sets: Mapping[str, Collection]
) -> int | None:
    collection = sets.get(step.name)
    wanted = next(selector_keys(step.key, state, node))
    if collection is None or wanted is None:
        return None
    element = collection.find(wanted)
    if element is None or element.excluded or not isinstance(element.data, SetMark):
        return state.mark if collection.whole else None
    return _flipped(state.mark, element.data.keep, element.data.flip)


def _flipped(mark: int | None, keep: int, flip: int | None) -> int | None:
    """A mark of which all bits are replaced is known, whatever it was."""
    return None if flip is None or (mark is None and keep) else ((mark or 0) & keep) ^ flip


def _bits(mark: int | None, mask: int) -> int | None:
    return None if mark is None else mark & mask
