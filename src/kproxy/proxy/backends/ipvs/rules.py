"""Typed values of ipvs mode: virtual servers, members of ipsets, and where its iptables rules stand.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kproxy.linux.netfilter.rules import Rule
from kproxy.model.network import Address, Family, Protocol, format_socket
from kproxy.proxy.backends.ipvs.names import IpSet
from kproxy.proxy.backends.xtables.rules import TableName, specification

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
        return f"{self.protocol.value.lower()} {format_socket(self.address, self.port)}"


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
        return format_socket(self.address, self.port)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an ipset as ``ipset save`` prints it, options included."""

    set: IpSet
    text: str

    @property
    def element(self) -> str:
        """The member without its options: what identifies it in the set."""
        return self.text.partition(" ")[0]


def rule_text(rule: Rule) -> str:
    """A rule of this mode without its chain; its marks have no leading zeros."""
    return specification(rule, "#x")


@dataclass(frozen=True, slots=True)
class HookRule:
    """A jump we keep at the top of a builtin chain."""

    table: TableName
    chain: str
    rule: Rule


Chains = Mapping[TableName, Mapping[str, tuple[Rule, ...]]]


@dataclass(frozen=True, slots=True)
class Ruleset:
    """The iptables part of one family."""

    family: Family
    chains: Chains
    hooks: tuple[HookRule, ...]
