"""One chain after another: what the rules at a hook make of a packet.

Every way is followed: both sides of chance, with its share, and both sides of what is not known, under an assumption
that the answer names.  Pure; no recursion but that of chains that jump.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from ipaddress import ip_address

from msgspec.structs import replace

from kproxy.linux.netfilter import descriptions
from kproxy.linux.netfilter.marks import changed_marks
from kproxy.linux.netfilter.matching import match_holds, selector_keys
from kproxy.linux.netfilter.node_state import ClientEntry, TracedNode
from kproxy.linux.netfilter.packet_state import Effect, FieldAbsent, PacketState, TraceStep, Tracking
from kproxy.linux.netfilter.patterns import Selector, Span, Value
from kproxy.linux.netfilter.rules import (
    Chain,
    Chance,
    Change,
    CopyMark,
    CountPacket,
    Dnat,
    Element,
    End,
    Goto,
    InSet,
    Is,
    Jump,
    LoseMark,
    MapLookup,
    MapMark,
    Masquerade,
    Match,
    NoTrack,
    Recent,
    Redirect,
    Reject,
    Remember,
    Rule,
    SetMark,
    Statement,
    Step,
    Table,
    Unknown,
    Unmodelled,
)
from kproxy.model.network import Address

MOST_CONDITIONS = 6
"""On one way; what is not known beyond is assumed not to hold, lest ways double for ever."""


class PathFate(enum.Enum):
    """How a walk through a chain, or a whole way, ended."""

    THROUGH = "goes on"
    RETURN = "returned"
    ACCEPT = "accepted"
    REJECTED = "rejected"
    DROPPED = "dropped"
    UNKNOWN = "not known"

    __hash__ = object.__hash__  # by identity, as members are compared


FINAL = frozenset({PathFate.REJECTED, PathFate.DROPPED, PathFate.UNKNOWN})

Paths = list[tuple[PathFate, PacketState]]
Tried = Iterator[tuple[PathFate | None, PacketState]]
"""How a rule ends; None: on to the next."""

MATCHES = (Is, InSet, Chance, Recent, Unknown)
MARK_CHANGES = (SetMark, CopyMark, MapMark, LoseMark)


@dataclass(frozen=True, slots=True)
class Walk:
    """Through the chains of one table."""

    node: TracedNode
    table: Table

    def base_chain(self, chain: Chain, state: PacketState) -> Paths:
        """Through a base chain, to its policy at the end."""
        ended: Paths = []
        for fate, after in self._chain(chain, state):
            if fate in {PathFate.THROUGH, PathFate.RETURN}:
                ended.append(self._policy(chain, after))
            else:
                ended.append((fate, after))
        return ended

    def _policy(self, chain: Chain, state: PacketState) -> tuple[PathFate, PacketState]:
        if chain.hook is None or chain.hook.policy is not End.DROP:
            return PathFate.THROUGH, state
        return PathFate.DROPPED, state.with_step(
            TraceStep(self._place(chain), "policy", "dropped: no rule accepts it", effect=Effect.DISCARDED)
        )

    def _place(self, chain: Chain) -> str:
        return f"{self.table.label} {chain.name}"

    def _chain(self, chain: Chain, state: PacketState) -> Paths:
        ended: Paths = []
        states = [state]
        for rule in chain.rules:
            failing = [self._failing_match(rule, current) for current in states]
            if all(isinstance(match, Is | InSet) for match in failing):
                continue  # by far the most rules
            going_on: list[PacketState] = []
            for current, match in zip(states, failing, strict=True):
                for fate, after in self._rule((chain, rule), match, current):
                    if fate is None:
                        going_on.append(after)
                    else:
                        ended.append((fate, after))
            states = merged(going_on)
            if not states:
                break
        return [*ended, *((PathFate.THROUGH, left) for left in states)]

    def _failing_match(self, rule: Rule, state: PacketState) -> Match | None:
        """The first match of the rule that is known to fail; none after a change of the mark, which it may depend on."""
        for step in rule.steps:
            if isinstance(step, MATCHES):
                if match_holds(step, state, self.node, self.table.collections) is False:
                    return step
            elif isinstance(step, MARK_CHANGES):
                return None
        return None

    def _rule(self, place: tuple[Chain, Rule], failing: Match | None, state: PacketState) -> Tried:
        """A rule none of whose known matches fails is gone through step by step."""
        if failing is None:
            yield from self._steps(place, place[1].steps, state)
        elif isinstance(failing, Recent) and not self.node.knows_clients:
            yield None, state.assuming(descriptions.describe_unseen_client(failing, state))
        else:
            yield None, state

    def _steps(self, place: tuple[Chain, Rule], steps: Sequence[Step], state: PacketState) -> Tried:
        for number, step in enumerate(steps):
            if isinstance(step, Chance):
                if step.share < 1:
                    yield None, replace(state, chance=state.chance * (1 - step.share))
                if not step.share:
                    return
                state = replace(state, chance=state.chance * step.share)
            elif isinstance(step, MATCHES):
                held = match_holds(step, state, self.node, self.table.collections)
                if held is None:
                    yield from self._either((place, steps[number + 1 :]), step, state)
                    return
                if held is False:
                    yield None, state
                    return
            elif isinstance(step, Change):
                state = self._done(place, step, state)
            else:
                yield from self._ending(place, step, state)
                return
        yield None, state

    def _either(
        self, rest: tuple[tuple[Chain, Rule], Sequence[Step]], match: Match, state: PacketState
    ) -> Tried:
        """Both ways of what is not known."""
        place, steps = rest
        condition = descriptions.describe_match(match, self._place(place[0]), place[1])
        while state.conditions & {(condition, True), (condition, False)}:
            condition = f"{condition}, evaluated again"  # of a packet that may be another one by now
        if all(isinstance(step, Remember) for step in steps):
            yield None, state
            return
        if len(state.conditions) >= MOST_CONDITIONS:
            yield None, state.assuming(f"does not hold: {condition}")
            return
        yield None, state.with_condition(condition, False)
        yield from self._steps(place, steps, state.with_condition(condition, True))

    # ------------------------------------------------------------------ statements

    def _step(self, place: tuple[Chain, Rule], description: str, effect: Effect = Effect.NONE) -> TraceStep:
        chain, rule = place
        return TraceStep(self._place(chain), rule.label, description, rule.text, rule.comment, effect)

    def _done(self, place: tuple[Chain, Rule], step: Change, state: PacketState) -> PacketState:
        """A statement after which the rule goes on."""
        match step:
            case Remember(name, key):
                entry = ClientEntry(name, self._client_key(key, state))
                known = replace(state, remembered=state.remembered | {entry})
                return known.with_step(self._step(place, f"puts the client in list {name}"))
            case CountPacket():
                return state
            case NoTrack():
                if state.tracked is not Tracking.NOT_YET:
                    return state
                untracked = replace(state, tracked=Tracking.NEVER)
                return untracked.with_step(self._step(place, "connection tracking, and NAT, leave it alone"))
            case _:
                return self._marked(place, step, state)

    def _client_key(self, key: tuple[Selector, ...], state: PacketState) -> tuple[Value, ...]:
        """Empty where it is not known, or the packet has no such field."""
        try:
            return next(iter(selector_keys(key, state, self.node))) or ()
        except FieldAbsent:
            return ()

    def _marked(
        self, place: tuple[Chain, Rule], step: SetMark | CopyMark | MapMark | LoseMark, state: PacketState
    ) -> PacketState:
        mark, connection = changed_marks(step, state, self.node, self.table.collections)
        if (mark, connection) == (state.mark, state.connection_mark):
            return state
        marked = replace(state, mark=mark, connection_mark=connection)
        if isinstance(step, LoseMark):
            marked = marked.assuming(f"marks are not known after {place[1].text}")
        if mark == state.mark:
            return marked
        description = "not known" if mark is None else f"{mark:#x}"
        return marked.with_step(self._step(place, f"the packet's mark becomes {description}", Effect.MARK))

    def _ending(self, place: tuple[Chain, Rule], step: Statement, state: PacketState) -> Tried:
        match step:
            case MapLookup():
                yield from self._look(place, step, state)
            case Jump(name) | Goto(name):
                yield from self._other(place, step, name, state)
            case End.CONTINUE:
                yield None, state
            case End.RETURN:
                yield PathFate.RETURN, state.with_step(self._step(place, step.value))
            case End.ACCEPT:
                yield PathFate.ACCEPT, state.with_step(self._step(place, step.value))
            case End.DROP:
                yield PathFate.DROPPED, state.with_step(self._step(place, step.value, Effect.DISCARDED))
            case Reject(how):
                description = f"rejected with {how}"
                yield PathFate.REJECTED, state.with_step(self._step(place, description, Effect.DISCARDED))
            case Unmodelled(text):
                yield self._unmodelled(place, text, state)
            case _:
                yield PathFate.ACCEPT, self._translated(place, step, state)

    def _unmodelled(
        self, place: tuple[Chain, Rule], text: str, state: PacketState
    ) -> tuple[PathFate, PacketState]:
        description = f"not known, because this is not modelled: {text}"
        return PathFate.UNKNOWN, state.with_step(self._step(place, description, Effect.DISCARDED))

    def _other(self, place: tuple[Chain, Rule], step: Jump | Goto, name: str, state: PacketState) -> Tried:
        chain = self.table.chains.get(name)
        if chain is None:
            yield None, state.assuming(f"chain {name}, which is not in what was read, does nothing")
            return
        verdict = "goto" if isinstance(step, Goto) else "jump to"
        entered = state.with_step(self._step(place, f"{verdict} chain {name}"))
        through = PathFate.RETURN if isinstance(step, Goto) else None
        for fate, after in self._chain(chain, entered):
            if fate not in {PathFate.THROUGH, PathFate.RETURN}:
                yield fate, after
            elif after.effect() == entered.effect():
                note = self._step(place, f"{verdict} chain {name}, without effect", Effect.IDLE)
                yield through, replace(after, steps=(*state.steps, note))
            else:
                yield through, after

    def _look(self, place: tuple[Chain, Rule], step: MapLookup, state: PacketState) -> Tried:
        """Each element that may be found, each with its share."""
        collection = step.inline or self.table.collections.get(step.name)
        try:
            lookups = list(selector_keys(step.key, state, self.node))
        except FieldAbsent:
            yield None, state
            return
        if collection is None or None in lookups:
            yield self._unmodelled(place, f"what the map has for it: {step.name or place[1].text}", state)
            return
        counted: dict[str, tuple[Element | None, int]] = {}
        for key in lookups:
            element = collection.find(key) if key is not None else None
            _, times = counted.get(repr(element), (element, 0))
            counted[repr(element)] = element, times + 1
        for element, times in counted.values():
            share = replace(state, chance=state.chance * Fraction(times, len(lookups)))
            if element is not None:
                yield from self._take(place, step, element, share)
            elif collection.whole:
                yield None, share
            else:
                yield self._unmodelled(place, f"an element of the map: {step.name or place[1].text}", share)

    def _take(
        self, place: tuple[Chain, Rule], step: MapLookup, element: Element, state: PacketState
    ) -> Tried:
        has = descriptions.describe_element(step, element)
        chain, rule = place
        place = chain, replace(rule, comment=element.comment or rule.comment)
        match element.data:
            case Dnat(address, port) as target:
                wanted = target if step.port is None else Dnat(address, step.port or port)
                yield PathFate.ACCEPT, _to(wanted, state).with_step(self._step(place, has, Effect.TRANSLATED))
            case Jump() | Goto() | End():
                for fate, after in self._ending(place, element.data, state):
                    yield fate, descriptions.redescribed(after, len(state.steps), has)
            case _:
                yield self._unmodelled(place, f"what the map has for it: {has}", state)

    def _translated(self, place: tuple[Chain, Rule], step: Statement, state: PacketState) -> PacketState:
        effect = Effect.TRANSLATED
        match step:
            case Dnat():
                changed = _to(step, state)
                description = (
                    f"the destination becomes {descriptions.format_destination(step, changed.packet)}"
                )
            case Redirect(port):
                changed = replace(_to(Dnat(self._own(state), port), state), to_node=True)
                description = "the destination becomes the node itself"
            case Masquerade(address):
                effect = Effect.MASQUERADED
                changed = replace(state, masqueraded=address or "the node")
                description = f"the source becomes {address or 'an address of the node'}"
            case _:
                return state
        return changed.with_step(self._step(place, description, effect))

    def _own(self, state: PacketState) -> Address | None:
        """Where `Redirect` sends: to loopback what the node sends, else to an address of the interface it came by."""
        packet = state.packet
        if packet.own:
            return ip_address("127.0.0.1" if packet.destination.version == 4 else "::1")
        return self.node.address_of(packet.interface or "", packet.family)


def _to(step: Dnat, state: PacketState) -> PacketState:
    """Of a range the first stands for all."""
    if isinstance(step.address, Span) or isinstance(step.port, Span):
        state = state.assuming(f"of {descriptions.format_range(step)} the first is taken; any may be")
    address = step.address.first if isinstance(step.address, Span) else step.address
    port = step.port.first if isinstance(step.port, Span) else step.port
    packet = replace(
        state.packet,
        destination=address or state.packet.destination,
        port=port or state.packet.port,
    )
    return replace(state, packet=packet, translated=True)


def merged(states: list[PacketState]) -> list[PacketState]:
    """Those that differ in nothing but how they came about once, with all their chances."""
    if len(states) < 2:
        return states
    kept: dict[tuple[PacketState, frozenset[tuple[str, bool]]], PacketState] = {}
    for state in states:
        key = state.effect(), state.conditions
        known = kept.get(key)
        kept[key] = state if known is None else _both(known, state, known.chance + state.chance)
    found: list[PacketState] = []
    if not any(state.conditions for state in kept.values()):
        return list(kept.values())
    for state in kept.values():
        for at, other in enumerate(found):
            if _same_either_way(state, other):
                found[at] = _either_way(state, other)
                break
        else:
            found.append(state)
    return found


def _both(one: PacketState, other: PacketState, chance: Fraction) -> PacketState:
    return replace(one, chance=chance, assumed=one.assumed | other.assumed)


def _either_way(one: PacketState, other: PacketState) -> PacketState:
    """The way on which it does not hold stands for both."""
    ((condition, held),) = one.conditions - other.conditions
    kept = other if held else one
    shared = replace(
        _both(kept, one if held else other, kept.chance), conditions=one.conditions & other.conditions
    )
    return shared.assuming(f"the same comes of it whether this holds or not: {condition}")


def _same_either_way(one: PacketState, other: PacketState) -> bool:
    """True if they differ in one condition only, which the one takes to hold and the other not to."""
    apart = one.conditions ^ other.conditions
    return (
        len(apart) == 2
        and len({requested for requested, _ in apart}) == 1
        and one.chance == other.chance
        and one.effect() == other.effect()
    )
