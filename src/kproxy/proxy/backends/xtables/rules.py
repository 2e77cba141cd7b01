"""iptables rules as typed values, and their text for ``iptables-restore``.

``str()`` of a match or a target is its text; `specification` and `render` join them to a rule and to the lines of a chain.
Used by iptables mode and ipvs mode.  Pure.
"""

from __future__ import annotations

import enum
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from kproxy.model.network import format_address

if TYPE_CHECKING:
    from kproxy.model.network import Address, Network, Protocol

ChainName = str

COMMENT_LIMIT = 255
"""Bytes the comment match holds (``XT_MAX_COMMENT_LEN`` less the final zero)."""


class Table(enum.Enum):
    """A table of iptables; the value is its name."""

    MANGLE = "mangle"
    NAT = "nat"
    FILTER = "filter"


class Hook(enum.Enum):
    """A builtin chain; the value is its name."""

    PREROUTING = "PREROUTING"
    INPUT = "INPUT"
    FORWARD = "FORWARD"
    OUTPUT = "OUTPUT"
    POSTROUTING = "POSTROUTING"


class ConntrackStatus(enum.Enum):
    """Conntrack state of a packet's connection; DNAT: its destination was rewritten."""

    NEW = "NEW"
    ESTABLISHED = "ESTABLISHED"
    RELATED = "RELATED"
    INVALID = "INVALID"
    DNAT = "DNAT"


class PacketCounter(enum.Enum):
    """A counter of the kernel that rules count packets in; the value is its name, as in kube-proxy."""

    INVALID_DROPPED = "ct_state_invalid_dropped_pkts"
    LOCALHOST_ACCEPTED = "localhost_nps_accepted_pkts"


# Matches.  A rule's matches must all hold; ``negated`` turns one round.


class Source(msgspec.Struct, frozen=True, gc=False):
    """The packet's source is this address or in this network."""

    network: Address | Network
    negated: bool = False

    def __str__(self) -> str:
        return f"{'! ' if self.negated else ''}-s {format_address(self.network)}"


class Destination(msgspec.Struct, frozen=True, gc=False):
    """The packet's destination is this address or in this network."""

    network: Address | Network
    negated: bool = False

    def __str__(self) -> str:
        return f"{'! ' if self.negated else ''}-d {format_address(self.network)}"


class SourceIsLocal(msgspec.Struct, frozen=True, gc=False):
    """The source is an address of this node (or loopback): the node itself sent the packet."""

    def __str__(self) -> str:
        return "-m addrtype --src-type LOCAL"


class DestinationIsLocal(msgspec.Struct, frozen=True, gc=False):
    """The destination is an address of this node, loopback included."""

    def __str__(self) -> str:
        return "-m addrtype --dst-type LOCAL"


class Transport(msgspec.Struct, frozen=True, gc=False):
    """The packet's protocol and, where not None, its destination port."""

    protocol: Protocol
    destination_port: int | None = None

    def __str__(self) -> str:
        name = self.protocol.value.lower()
        if self.destination_port is None:
            return f"-p {name}"
        return f"-p {name} -m {name} --dport {self.destination_port}"


class GoesOn(msgspec.Struct, frozen=True, gc=False):
    """The segment neither ends nor resets its connection.

    One that does may be the first that is tracked of a connection older than the tracking, and INVALID for that.
    """

    def __str__(self) -> str:
        return "-m tcp --tcp-flags FIN,RST NONE"


class InInterface(msgspec.Struct, frozen=True, gc=False):
    """The interface the packet came in by: a name, or a prefix with a final ``+``.

    A packet the node itself sends has none: the match fails, and holds where negated.
    """

    name: str
    negated: bool = False

    def __str__(self) -> str:
        return f"! -i {self.name}" if self.negated else f"-i {self.name}"


class Conntrack(msgspec.Struct, frozen=True, gc=False):
    """The connection has one of these (negated: none of these)."""

    any_of: tuple[ConntrackStatus, ...]
    negated: bool = False

    def __str__(self) -> str:
        names = ",".join(status.value for status in self.any_of)
        return f"-m conntrack {'! ' if self.negated else ''}--ctstate {names}"


class Mark(msgspec.Struct, frozen=True, gc=False):
    """``packet mark & mask == value``."""

    value: int
    mask: int
    negated: bool = False

    def __str__(self) -> str:
        return f"-m mark {'! ' if self.negated else ''}--mark {self.value:#010x}/{self.mask:#010x}"


class OneIn(msgspec.Struct, frozen=True, gc=False):
    """Holds for one packet in ``count``, at random."""

    count: int

    def __str__(self) -> str:
        return _one_in(self.count)


@cache
def _one_in(count: int) -> str:
    return f"-m statistic --mode random --probability {1 / count:0.10f}"


class RecentlySeen(msgspec.Struct, frozen=True, gc=False):
    """The packet's source was put in list ``name`` less than ``seconds`` ago (older ones are reaped)."""

    name: str
    seconds: int

    def __str__(self) -> str:
        return f"-m recent --name {self.name} --rcheck --seconds {self.seconds} --reap"


class RememberSource(msgspec.Struct, frozen=True, gc=False):
    """Puts the packet's source in list ``name``; always holds.  Evaluated in its place among the matches."""

    name: str

    def __str__(self) -> str:
        return f"-m recent --name {self.name} --set"


class Counted(msgspec.Struct, frozen=True, gc=False):
    """Counts the packet, for which all matches before held; always holds."""

    counter: PacketCounter

    def __str__(self) -> str:
        return f"-m nfacct --nfacct-name {self.counter.value}"


Match = (
    Source
    | Destination
    | SourceIsLocal
    | DestinationIsLocal
    | Transport
    | GoesOn
    | InInterface
    | Conntrack
    | Mark
    | OneIn
    | RecentlySeen
    | RememberSource
    | Counted
)


# Targets.


class Jump(msgspec.Struct, frozen=True, gc=False):
    """Continue in that chain; come back when it ends or returns."""

    chain: ChainName

    def __str__(self) -> str:
        return f"-j {self.chain}"


class Return(msgspec.Struct, frozen=True, gc=False):
    """Leave this chain."""

    def __str__(self) -> str:
        return "-j RETURN"


class Accept(msgspec.Struct, frozen=True, gc=False):
    """Let the packet pass this hook of this table."""

    def __str__(self) -> str:
        return "-j ACCEPT"


class Drop(msgspec.Struct, frozen=True, gc=False):
    """Discard the packet without a reply."""

    def __str__(self) -> str:
        return "-j DROP"


class Reject(msgspec.Struct, frozen=True, gc=False):
    """Discard and answer ICMP port unreachable."""

    def __str__(self) -> str:
        return "-j REJECT"


class DestinationNAT(msgspec.Struct, frozen=True, gc=False):
    """Rewrite the connection's destination; ends the nat table for the packet."""

    address: Address
    port: int

    def __str__(self) -> str:
        if self.address.version == 4:
            return f"-j DNAT --to-destination {format_address(self.address)}:{self.port}"
        return f"-j DNAT --to-destination [{self.address}]:{self.port}"


class Masquerade(msgspec.Struct, frozen=True, gc=False):
    """Rewrite the connection's source to the address of the interface it leaves by; ends the nat table."""

    random_fully: bool = True

    def __str__(self) -> str:
        return "-j MASQUERADE --random-fully" if self.random_fully else "-j MASQUERADE"


class OrMark(msgspec.Struct, frozen=True, gc=False):
    """Set these bits of the packet's mark; go on."""

    bits: int

    def __str__(self) -> str:
        return f"-j MARK --or-mark {self.bits:#010x}"


class XorMark(msgspec.Struct, frozen=True, gc=False):
    """Flip these bits of the packet's mark; go on."""

    bits: int

    def __str__(self) -> str:
        return f"-j MARK --xor-mark {self.bits:#010x}"


Target = Jump | Return | Accept | Drop | Reject | DestinationNAT | Masquerade | OrMark | XorMark


class Rule(msgspec.Struct, frozen=True, gc=False):
    """When all ``matches`` hold, in order, do ``target``."""

    target: Target
    matches: tuple[Match, ...] = ()
    comment: str = ""


class Chain(msgspec.Struct, frozen=True, gc=False):
    """A chain and all its rules.  Of a builtin chain: the rules we keep at its top."""

    name: ChainName
    rules: tuple[Rule, ...] = ()


def specification(rule: Rule) -> str:
    """The rule without its chain, as ``iptables -C CHAIN`` and ``-I CHAIN`` take it."""
    text = f'-m comment --comment "{rule.comment[:COMMENT_LIMIT]}" ' if rule.comment else ""
    for match in rule.matches:
        text += f"{match!s} "
    return f"{text}{rule.target!s}"


def hook_specification(rule: Rule) -> str:
    """A jump from a builtin chain without that chain, byte for byte as kube-proxy writes it: its comment follows its matches.

    The tools compare rules match by match: each of the two proxies finds and removes the other's jumps only if they
    are written alike (pkg/proxy/iptables/proxier.go and cleanup.go of Kubernetes 1.36).
    """
    comment = (f'-m comment --comment "{rule.comment[:COMMENT_LIMIT]}"',) if rule.comment else ()
    return " ".join((*map(str, rule.matches), *comment, str(rule.target)))


def render(chain: Chain) -> list[str]:
    """The chain's ``-A`` lines for ``iptables-restore``, in order, without line ends."""
    append = f"-A {chain.name} "
    return [append + specification(rule) for rule in chain.rules]
