"""Rules as lines for ``iptables-restore``, and what iptables names beside them: its tables, and counters.

The rules are values of `kproxy.linux.netfilter.rules`: matches, then one target.  Used by iptables mode and ipvs mode.  Pure.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kproxy.linux.netfilter.matches import destination_in
from kproxy.linux.netfilter.patterns import AnyFlag, FieldName, Masked, Prefix, Span
from kproxy.linux.netfilter.rules import (
    ALL_BITS,
    Chance,
    CountPacket,
    Dnat,
    End,
    Goto,
    InSet,
    Is,
    Jump,
    MapMark,
    Masquerade,
    Recent,
    Reject,
    Remember,
    SetMark,
)
from kproxy.model.network import format_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from kproxy.linux.netfilter.patterns import Pattern, Selector
    from kproxy.linux.netfilter.rules import Chain, Match, Point, Rule, Step
    from kproxy.model.network import Address, Protocol

ChainName = str

COMMENT_LIMIT = 255
"""Bytes the comment match holds (``XT_MAX_COMMENT_LEN`` less the final zero)."""


class TableName(enum.Enum):
    """A table of iptables; the value is its name."""

    MANGLE = "mangle"
    NAT = "nat"
    FILTER = "filter"


class PacketCounter(enum.Enum):
    """A counter of the kernel that rules count packets in; the value is its name, as in kube-proxy."""

    INVALID_DROPPED = "ct_state_invalid_dropped_pkts"
    LOCALHOST_ACCEPTED = "localhost_nps_accepted_pkts"


@dataclass(frozen=True, slots=True)
class HookRules:
    """The rules we keep at the top of a builtin chain, first to last; `hook_specification` is their text."""

    table: TableName
    hook: Point
    rules: tuple[Rule, ...]


_TRANSPORT_PORT = (FieldName.PROTOCOL, FieldName.PORT)


def to_port(protocol: Protocol, port: int) -> Is:
    """The packet's protocol and destination port."""
    return Is(_TRANSPORT_PORT, (protocol.value.lower(), port))


class Destination(NamedTuple):
    """Destination of packets to a frontend; ``address`` None: any address of the node that has node ports."""

    address: Address | None
    protocol: Protocol
    port: int

    @property
    def matches(self) -> tuple[Match, ...]:
        """The matches of its address, if it has one, and of its port.

        Clauses ``cluster-ip.undefined-port.not-served``, ``cluster-ip.undefined-protocol.not-served``,
        ``external-address.undefined-port.not-served``.
        """
        transport = to_port(self.protocol, self.port)
        return (transport,) if self.address is None else (destination_in(self.address), transport)


def specification(rule: Rule, mark: str = "#010x") -> str:
    """The rule without its chain, as ``iptables -C CHAIN`` and ``-I CHAIN`` take it; ``mark``: format of its marks."""
    text = f'-m comment --comment "{rule.comment[:COMMENT_LIMIT]}" ' if rule.comment else ""
    return text + " ".join([format_step(step, mark) for step in rule.steps])


def hook_specification(rule: Rule) -> str:
    """A jump from a builtin chain without that chain, byte for byte as kube-proxy writes it: its comment follows its matches.

    The tools compare rules match by match: each of the two proxies finds and removes the other's jumps only if they
    are written alike (pkg/proxy/iptables/proxier.go and cleanup.go of Kubernetes 1.36).
    """
    *matches, target = map(format_step, rule.steps)
    comment = (f'-m comment --comment "{rule.comment[:COMMENT_LIMIT]}"',) if rule.comment else ()
    return " ".join((*matches, *comment, target))


def insert_lines(wanted: HookRules) -> list[str]:
    """Lines that put the jumps at the top of a builtin chain that has none of them."""
    chain = wanted.hook.name
    lines = enumerate(map(hook_specification, wanted.rules), start=1)
    return [f"-I {chain} {place} {line}" for place, line in lines]


def render(chain: Chain) -> list[str]:
    """The chain's ``-A`` lines for ``iptables-restore``, in order, without line ends."""
    append = f"-A {chain.name} "
    return [append + specification(rule) for rule in chain.rules]


def format_step(step: Step, mark: str = "#010x") -> str:
    """One match or target."""
    return _FORMATS[type(step)](step, mark)


def _comparison(step: Is, mark: str) -> str:
    """Addresses and ports first, which a cluster has by the ten thousand."""
    selector, pattern = step.key[0], step.pattern[0]
    negation = "! " if step.negated else ""
    if selector is FieldName.SOURCE:
        return f"{negation}-s {format_address(pattern)}"  # type: ignore[arg-type]
    if selector is FieldName.DESTINATION:
        return f"{negation}-d {format_address(pattern)}"  # type: ignore[arg-type]
    if selector is FieldName.PROTOCOL:
        return f"-p {pattern}" + (
            f" -m {pattern} --dport {_ports(step.pattern[1])}" if len(step.pattern) > 1 else ""
        )
    return _extended_comparison(selector, pattern, negation, mark)


def _ports(pattern: Pattern) -> str:
    return f"{pattern.first}:{pattern.last}" if isinstance(pattern, Span) else str(pattern)


def _extended_comparison(selector: Selector, pattern: Pattern, negation: str, mark: str) -> str:
    match selector, pattern:
        case FieldName.IN, Prefix(text):
            return f"{negation}-i {text}+"
        case FieldName.IN, _:
            return f"{negation}-i {pattern}"
        case FieldName.SOURCE_TYPE, str():
            return f"-m addrtype {negation}--src-type {pattern.upper()}"
        case FieldName.DESTINATION_TYPE, str():
            return f"-m addrtype {negation}--dst-type {pattern.upper()}"
        case FieldName.TCP_FLAGS, AnyFlag(flags) if negation:
            return f"-m tcp --tcp-flags {','.join(sorted(flags)).upper()} NONE"
        case Masked(FieldName.MARK, mask), int(value):
            return f"-m mark {negation}--mark {value:{mark}}/{mask:{mark}}"
        case _:
            return _connection_comparison(selector, pattern, negation, mark)


def _connection_comparison(selector: Selector, pattern: Pattern, negation: str, mark: str) -> str:
    match selector, pattern:
        case FieldName.DIRECTION, str():
            return f"-m conntrack --ctdir {pattern.upper()}"
        case FieldName.STATE, AnyFlag(states):
            names = ",".join(state.upper() for state in _STATES if state in states)
            return f"-m conntrack {negation}--ctstate {names}"
        case Masked(FieldName.CONNECTION_MARK, mask), int(value):
            return f"-m connmark {negation}--mark {value:{mark}}/{mask:{mark}}"
        case _:
            raise AssertionError((selector, pattern))


_STATES = ("invalid", "new", "related", "established", "untracked", "snat", "dnat")
"""Conntrack states in the order in which ``iptables -S`` lists them."""


@cache
def _at_random(some: int, count: int) -> str:
    return f"-m statistic --mode random --probability {some / count:0.10f}"


def _directions(key: tuple[Selector, ...]) -> str:
    """The ends of the packet that the parts of a set's members are compared with; a port's protocol is not one."""
    return ",".join(_ENDS[part] for part in key if part in _ENDS)


_ENDS: dict[Selector, str] = {
    FieldName.SOURCE: "src",
    FieldName.SOURCE_PORT: "src",
    FieldName.DESTINATION: "dst",
    FieldName.PORT: "dst",
}


def _translation(step: Dnat, _: str) -> str:
    address = format_address(step.address)  # type: ignore[arg-type]
    return f"-j DNAT --to-destination {f'[{address}]' if ':' in address else address}:{step.port}"


def _mark_change(step: SetMark, mark: str) -> str:
    if step.keep in (ALL_BITS, ALL_BITS ^ step.flip) and not step.connection:
        return f"-j MARK --{'xor' if step.keep == ALL_BITS else 'or'}-mark {step.flip:{mark}}"
    target = "CONNMARK" if step.connection else "MARK"
    return f"-j {target} --set-xmark {step.flip:{mark}}/{ALL_BITS ^ step.keep:{mark}}"


_FORMATS: dict[type, Callable[[Any, str], str]] = {
    Is: _comparison,
    InSet: lambda step, _: f"-m set --match-set {step.name} {_directions(step.key)}",
    Chance: lambda step, _: _at_random(step.share.numerator, step.share.denominator),
    Recent: lambda step, _: f"-m recent --name {step.name} --rcheck --seconds {step.seconds} --reap",
    Remember: lambda step, _: f"-m recent --name {step.name} --set",
    CountPacket: lambda step, _: f"-m nfacct --nfacct-name {step.name}",
    Jump: lambda step, _: f"-j {step.chain}",
    Goto: lambda step, _: f"-g {step.chain}",
    End: lambda step, _: f"-j {step.name}",
    Reject: lambda _step, _mark: "-j REJECT",
    Dnat: _translation,
    Masquerade: lambda step, _: "-j MASQUERADE --random-fully" if step.random_fully else "-j MASQUERADE",
    SetMark: _mark_change,
    MapMark: lambda step, _: f"-j SET --map-set {step.name} {_directions(step.key)} --map-mark",
}
"""Text of each kind of step; a table, since a cluster has them by the hundred thousand."""
