"""Typed values of ipvs mode: virtual servers, members of ipsets, iptables rules.

``str()`` of a match or a target is its text for ``iptables-restore``, given that its ipsets are named in
`InSet` already.  Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from kproxy.model.network import Address, Family, Network, Protocol, format_address
from kproxy.proxy.backends.ipvs.names import IpSet
from kproxy.proxy.backends.xtables.rules import (
    DestinationIsLocal,
    GoesOn,
    InInterface,
    Jump,
    Masquerade,
    SourceIsLocal,
    Table,
)

PERSISTENT, SCHEDULER_1, SCHEDULER_2 = 0x1, 0x8, 0x10
"""Flags of a virtual server (``IP_VS_SVC_F_*``).  The second lets the hashing schedulers ``sh`` and ``mh`` pass over
destinations that take no new connections, the third lets them look at the source port too."""


@dataclass(frozen=True, slots=True)
class AddressKey:
    """Key of a virtual server by address, port and protocol."""

    address: Address
    port: int
    protocol: Protocol

    def __str__(self) -> str:
        return f"{self.protocol.value.lower()} {_socket(self.address, self.port)}"


@dataclass(frozen=True, slots=True)
class MarkKey:
    """Key of a virtual server for all packets with this mark, whatever their destination."""

    mark: int

    def __str__(self) -> str:
        return f"fwmark {self.mark:#x}"


Key = AddressKey | MarkKey


@dataclass(frozen=True, slots=True)
class Server:
    """Scheduling of a virtual server; ``persistence`` is in seconds, None for none."""

    scheduler: str
    flags: int = 0
    persistence: int | None = None


@dataclass(frozen=True, slots=True)
class Destination:
    """A real server, always reached by masquerading (NAT)."""

    address: Address
    port: int

    def __str__(self) -> str:
        return _socket(self.address, self.port)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an ipset as ``ipset save`` prints it, options included."""

    set: IpSet
    text: str

    @property
    def element(self) -> str:
        """The member without its options: what identifies it in the set."""
        return self.text.partition(" ")[0]


def _socket(address: Address, port: int) -> str:
    return f"{format_address(address)}:{port}" if address.version == 4 else f"[{address}]:{port}"


class State(enum.Enum):
    """Conntrack state of a packet's connection."""

    NEW = "NEW"
    KNOWN = "RELATED,ESTABLISHED"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class InSet:
    """The packet's ``fields`` (``dst,dst``: destination address and port) are in an ipset."""

    set: IpSet
    name: str
    fields: str

    def __str__(self) -> str:
        return f"-m set --match-set {self.name} {self.fields}"


@dataclass(frozen=True, slots=True)
class Source:
    """The source is in this network."""

    network: Network
    negated: bool = False

    def __str__(self) -> str:
        return f"{'! ' if self.negated else ''}-s {self.network}"


@dataclass(frozen=True, slots=True)
class OfProtocol:
    """The packet's transport protocol."""

    protocol: Protocol

    def __str__(self) -> str:
        return f"-p {self.protocol.value.lower()}"


@dataclass(frozen=True, slots=True)
class Conntrack:
    """The state of the packet's connection."""

    state: State

    def __str__(self) -> str:
        return f"-m conntrack --ctstate {self.state.value}"


@dataclass(frozen=True, slots=True)
class Mark:
    """``packet mark & mask == value``."""

    value: int
    mask: int
    negated: bool = False

    def __str__(self) -> str:
        return f"-m mark {'! ' if self.negated else ''}--mark {self.value:#x}/{self.mask:#x}"


Match = (
    InSet | Source | InInterface | SourceIsLocal | DestinationIsLocal | OfProtocol | GoesOn | Conntrack | Mark
)


@dataclass(frozen=True, slots=True)
class Goto:
    """Go through that chain and come back to the caller of this one."""

    chain: str

    def __str__(self) -> str:
        return f"-g {self.chain}"


class Verdict(enum.Enum):
    """A target that ends a chain or the packet."""

    ACCEPT = "ACCEPT"
    DROP = "DROP"
    REJECT = "REJECT"
    RETURN = "RETURN"

    def __str__(self) -> str:
        return f"-j {self.value}"


@dataclass(frozen=True, slots=True)
class OrMark:
    """Set bits of the packet's mark."""

    bits: int

    def __str__(self) -> str:
        return f"-j MARK --or-mark {self.bits:#x}"


@dataclass(frozen=True, slots=True)
class XorMark:
    """Flip bits of the packet's mark."""

    bits: int

    def __str__(self) -> str:
        return f"-j MARK --xor-mark {self.bits:#x}"


@dataclass(frozen=True, slots=True)
class MapMark:
    """Give the packet the mark that its destination address and port have in an ipset."""

    name: str

    def __str__(self) -> str:
        return f"-j SET --map-set {self.name} dst,dst --map-mark"


Target = Jump | Goto | Verdict | Masquerade | OrMark | XorMark | MapMark


@dataclass(frozen=True, slots=True)
class Rule:
    """When all matches hold, do ``target``."""

    target: Target
    matches: tuple[Match, ...] = ()
    comment: str = ""

    def __str__(self) -> str:
        comment = [f'-m comment --comment "{self.comment}"'] if self.comment else []
        return " ".join([*comment, *map(str, self.matches), str(self.target)])


@dataclass(frozen=True, slots=True)
class HookRule:
    """A jump we keep at the top of a builtin chain."""

    table: Table
    chain: str
    rule: Rule


Chains = Mapping[Table, Mapping[str, tuple[Rule, ...]]]


@dataclass(frozen=True, slots=True)
class Ruleset:
    """The iptables part of one family."""

    family: Family
    chains: Chains
    hooks: tuple[HookRule, ...]
