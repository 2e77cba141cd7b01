"""Driver of the iptables tools of one family and variant.

Both variants are driven alike, except where chains are looked up: of iptables-nft the kernel is queried by netlink, since
``iptables-nft-save`` takes 20 s for 5,000 Services instead of 0.1 s, and one chain needs no process then.
All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import enum
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from kproxy.linux.legacy_tables import LegacyTables
from kproxy.linux.netlink import attribute, attributes, netfilter_header
from kproxy.linux.netlink_socket import NETLINK_NETFILTER, Netlink
from kproxy.model.network import Family
from kproxy.proxy.backends.xtables.blocks import LEGACY_BLOCK_CHAINS, NFT_BLOCK_CHAINS
from kproxy.proxy.backends.xtables.rules import TableName, specification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kproxy.linux.netfilter.rules import Rule
    from kproxy.proxy.backends.xtables.blocks import Block
    from kproxy.proxy.backends.xtables.rules import ChainName

LOCK_SECONDS = 5
"""Time in seconds that a tool waits for the xtables lock (``life.iptables-lock``)."""

RESTORE_TIMEOUT = 300.0
"""Seconds one restore may take."""

_NFT_MSG_GETCHAIN = (10 << 8) | 4
_NFTA_CHAIN_TABLE = 1
_NFTA_CHAIN_NAME = 3
_NFGENMSG_SIZE = 4
_NFPROTO = {Family.IPV4: 2, Family.IPV6: 10}
_COMMANDS = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
_RANDOM_FULLY_SINCE = (1, 6, 2)
_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?: \((nf_tables|legacy)\))?")


class Variant(enum.Enum):
    """Kernel interface of the tools; the value is the suffix of their names."""

    NFT = "nft"
    LEGACY = "legacy"


@dataclass(frozen=True, slots=True)
class Tools:
    """``command`` is ``iptables``, ``ip6tables-legacy`` and the like; ``environment`` is added for every run."""

    family: Family
    command: str
    variant: Variant
    version: tuple[int, int, int]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def random_fully(self) -> bool:
        """True if MASQUERADE supports ``--random-fully``."""
        return self.version >= _RANDOM_FULLY_SINCE

    @property
    def block_chains(self) -> int:
        """Largest number of chains in a block of a restore that is still fast."""
        return NFT_BLOCK_CHAINS if self.variant is Variant.NFT else LEGACY_BLOCK_CHAINS

    def restore(self, blocks: Iterable[Block], on_start: Callable[[int], None] = lambda _: None) -> None:
        """Apply blocks one after the other; on an error the earlier ones stay applied.

        ``on_start`` is called with the tool's process ID before the tool gets input.
        """
        argv = (f"{self.command}-restore", "--noflush", "-w", str(LOCK_SECONDS))
        text = (chunk.encode() for block in blocks for chunk in block.chunks())
        host.run_tool(argv, text, timeout=RESTORE_TIMEOUT, environment=self.environment, on_start=on_start)

    def has_rule(self, table: TableName, chain: ChainName, rule: Rule) -> bool:
        """True if the chain exists and has exactly this rule, at any place."""
        return self._succeeds(table, "-C", chain, *shlex.split(specification(rule)))

    def has_chain(self, table: TableName, chain: ChainName) -> bool:
        """True if the chain exists."""
        if self.variant is Variant.NFT:
            return _has_nft_chain(self.family, table, chain)
        return self._succeeds(table, "-S", chain)

    def list_rules(self, table: TableName, chain: ChainName) -> list[str]:
        """A chain as ``-S`` prints it, its declaration first; raises `HostError` if it does not exist."""
        argv = (self.command, "-w", str(LOCK_SECONDS), "-t", table.value, "-S", chain)
        return host.run_tool(argv, environment=self.environment).splitlines()

    def chains(self) -> dict[TableName, frozenset[ChainName]]:
        """Names of all chains in the tables we use, builtin ones included where they exist."""
        return _nft_chains(self.family) if self.variant is Variant.NFT else self._chains_of_legacy()

    def _succeeds(self, table: TableName, *arguments: str) -> bool:
        argv = (self.command, "-w", str(LOCK_SECONDS), "-t", table.value, *arguments)
        try:
            host.run_tool(argv, environment=self.environment)
        except HostError as error:
            if error.reason is Reason.MISSING:
                return False
            raise
        return True

    def _chains_of_legacy(self) -> dict[TableName, frozenset[ChainName]]:
        loaded = LegacyTables(self.family).names()  # reading another would create it
        return {t: self._saved_chains(t) if t.value in loaded else frozenset() for t in TableName}

    def _saved_chains(self, table: TableName) -> frozenset[ChainName]:
        return frozenset(
            line[1:].split(b" ", 1)[0].decode() for line in self.saved(table) if line.startswith(b":")
        )

    def saved(self, table: TableName) -> Iterator[bytes]:
        """Output of ``iptables-save`` for a table; with iptables-nft it takes 20 s with 5,000 Services."""
        return host.run_lines((f"{self.command}-save", "-t", table.value), environment=self.environment)


def find_tools(
    family: Family, variant: Variant | None = None, environment: Mapping[str, str] | None = None
) -> Tools:
    """The installed tools of a variant, or those behind the system's ``iptables``.

    Raises `HostError` UNSUPPORTED if there are none, or if they cannot work with this kernel.
    """
    command = command_of(family, variant)
    printed = host.run_tool((command, "--version"))
    match = _VERSION.search(printed)
    if match is None:
        raise HostError(f"{command} --version", f"unknown answer {printed.strip()!r}", Reason.UNSUPPORTED)
    found = Variant.NFT if match[4] == "nf_tables" else Variant.LEGACY
    version = (int(match[1]), int(match[2]), int(match[3]))
    return Tools(family, command, found, version, dict(environment or {}))


def command_of(family: Family, variant: Variant | None) -> str:
    """The command of a variant, or the system's default."""
    return _COMMANDS[family] + (f"-{variant.value}" if variant else "")


def list_chains_by_netlink(family: Family, variant: Variant) -> dict[TableName, frozenset[ChainName]] | None:
    """The chains of a variant as far as the kernel lists them without tools; None: tables exist, with unknown chains.

    nf_tables can be dumped; of iptables-legacy only the names of tables are listed.  Raises `HostError` where the kernel
    does not have the variant.
    """
    if variant is Variant.NFT:
        return _nft_chains(family)
    return None if LegacyTables(family).names() else {}


def _has_nft_chain(family: Family, table: TableName, chain: ChainName) -> bool:
    names = ((_NFTA_CHAIN_TABLE, table.value), (_NFTA_CHAIN_NAME, chain))
    wanted = b"".join(attribute(kind, f"{name}\0".encode()) for kind, name in names)
    try:
        with Netlink(NETLINK_NETFILTER) as netlink:
            netlink.get(_NFT_MSG_GETCHAIN, netfilter_header(_NFPROTO[family]) + wanted)
    except HostError as error:
        if error.reason is Reason.MISSING:
            return False
        raise
    return True


def _nft_chains(family: Family) -> dict[TableName, frozenset[ChainName]]:
    found: dict[str, set[ChainName]] = {table.value: set() for table in TableName}
    with Netlink(NETLINK_NETFILTER) as netlink:
        for payload in netlink.dump(_NFT_MSG_GETCHAIN, netfilter_header(_NFPROTO[family])):
            chain = attributes(payload[_NFGENMSG_SIZE:])
            table, name = (_text(chain[kind]) for kind in (_NFTA_CHAIN_TABLE, _NFTA_CHAIN_NAME))
            if table in found:
                found[table].add(name)
    return {table: frozenset(found[table.value]) for table in TableName}


def _text(payload: memoryview) -> str:
    return bytes(payload).rstrip(b"\0").decode()
