"""Drift monitors of iptables mode: detect changes of our chains by other programs since the last write.

Theory of operation
-------------------
Only *that* something changed is found out, not what: every repair writes everything.  The two variants of iptables need two ways.

* iptables-nft: the kernel multicasts each change of nf_tables with the netlink port, mostly the process ID, that made it.  Changes of the process that we run
  are ignored (`DriftMonitor.ignore_process`), all others in chains of ours are drift.  A check costs one system call.
  Before everything is written the queue is discarded, and while it is written all monitors are paused: tens of thousands
  of own changes would overflow the queue.
* iptables-legacy: the kernel reports nothing.  The rules in our chains are counted and summed up from what the listing tool prints,
  in thorough checks only, where a table is not as it was in the last one, and at most for a hundredth of the time.  The first
  sum after a write is taken as what was written, provided that the count is what it should be.

The applier checks jumps from builtin chains and the canary chains, in thorough checks.
"""

from __future__ import annotations

import re
import time
import zlib
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kproxy.linux.netfilter.rules import Jump
from kproxy.linux.nft_monitor import NftChange, NftChangeKind, NftMonitor, format_changes
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.iptables.static_rules import hook_rules
from kproxy.proxy.backends.xtables.kernel.tools import Variant
from kproxy.proxy.backends.xtables.rules import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from kproxy.proxy.backends.xtables.kernel.tools import Tools
    from kproxy.proxy.backends.xtables.rules import ChainName

_CHAIN_PREFIX = b"KUBE-"
_TABLES = frozenset(table.value for table in TableName)
_BUILTIN = frozenset(hook.hook.name for hook in hook_rules(localhost=True))
_JUMPED_TO = re.compile(
    b"(?:%s)\0"
    % b"|".join(
        sorted(
            step.chain.encode()
            for hook in hook_rules(localhost=False)
            for rule in hook.rules
            for step in rule.steps
            if isinstance(step, Jump)
        )
    )
)
_SHARE = 100
"""Reciprocal of the largest share of time that checksums may take."""


class DriftMonitor(Protocol):
    """Detects changes that other processes make to our chains; one implementation for each iptables variant."""

    def ignore_process(self, process: int) -> None:
        """Ignore changes made by this process ID, our tool's; 0: it has ended."""

    def reset(self) -> None:
        """Discard past changes: everything is about to be written."""

    def paused(self) -> AbstractContextManager[None]:
        """Context of a write of everything, in which changes are not recorded."""

    def notifiers(self) -> tuple[int, ...]:
        """Descriptors that are readable when there may be changes; none where the kernel reports nothing."""

    def find_drift(self, totals: Mapping[TableName, int], *, thorough: bool) -> tuple[str, ...]:
        """Changes since the last call; ``totals``: expected number of our rules by table; ``thorough``: may start processes."""


def is_ours(table: TableName, chain: ChainName) -> bool:
    """True if only a service proxy writes to the chain; KUBE-FIREWALL is the kubelet's too."""
    return chain != names.FIREWALL and names.is_own(table, chain)


class NftDriftMonitor:
    """Drift monitor for iptables-nft: nf_tables notifications by netlink."""

    def __init__(self, family: Family) -> None:
        """Subscribe to notifications; raises `HostError`."""
        self._family = family
        self._monitor = NftMonitor(_CHAIN_PREFIX)

    def ignore_process(self, process: int) -> None:
        """Ignore notifications with this netlink port: the kernel gives a tool its process ID as port, if that is free."""
        self._monitor.ignore_port(process)

    def reset(self) -> None:
        """Receive and discard the notifications queued so far."""
        self._monitor.discard_pending()

    def paused(self) -> AbstractContextManager[None]:
        """Context in which all monitors of the process are paused: a full write causes tens of thousands of notifications."""
        return NftMonitor.paused()

    def notifiers(self) -> tuple[int, ...]:
        """The monitor's socket."""
        return (self._monitor.fileno(),)

    def find_drift(self, totals: Mapping[TableName, int], *, thorough: bool) -> tuple[str, ...]:  # noqa: ARG002
        """Changes notified since the last call; none if notifications were lost, then only a thorough check finds drift."""
        return format_changes(filter(self._concerns_us, self._monitor.changes() or ()))

    def _concerns_us(self, change: NftChange) -> bool:
        """True for a change in a chain of ours, and for a deleted jump to one from a builtin chain."""
        if change.family is not self._family or change.table not in _TABLES:
            return False
        if is_ours(TableName(change.table), change.name):
            return True
        taken = change.kind is NftChangeKind.DELETE_RULE and change.name in _BUILTIN
        return taken and _JUMPED_TO.search(change.body) is not None


@dataclass(frozen=True, slots=True)
class _Checksum:
    """Number and checksum of our chains' rules in one table."""

    rules: int
    check: int


class LegacyDriftMonitor:
    """Drift monitor for iptables-legacy, which has no notifications: number and CRC of our rules as the tool lists them.

    ``listed`` yields the lines of one table in the format of iptables-legacy-save; ``read_state`` is from `state_reader`.
    """

    def __init__(
        self, listed: Callable[[TableName], Iterable[bytes]], read_state: Callable[[], bytes]
    ) -> None:
        """Start without checksums."""
        self._listed, self._read_state = listed, read_state
        self._checksums: dict[TableName, _Checksum] = {}
        self._state: bytes | None = None
        self._not_before = 0.0

    def ignore_process(self, process: int) -> None:
        """Discard the checksums: our tool has changed the rules."""
        if process:
            self.reset()

    def reset(self) -> None:
        """Discard the checksums."""
        self._checksums, self._state = {}, None

    def paused(self) -> AbstractContextManager[None]:
        """Context without effect: iptables-legacy has no notifications."""
        return nullcontext()

    def notifiers(self) -> tuple[int, ...]:
        """None."""
        return ()

    def find_drift(self, totals: Mapping[TableName, int], *, thorough: bool) -> tuple[str, ...]:
        """Tables whose number of our rules is not the expected one, or whose checksum differs from the last one."""
        started = time.monotonic()
        if not thorough or started < self._not_before:
            return ()
        state = self._read_state()
        if state == self._state:
            return ()
        found = self._differing(totals)
        ended = time.monotonic()
        self._not_before, self._state = ended + _SHARE * (ended - started), None if found else state
        return found

    def _differing(self, totals: Mapping[TableName, int]) -> tuple[str, ...]:
        now = {table: self._checksum(table) for table in TableName}
        before, self._checksums = self._checksums, now
        return tuple(
            f"rules of table {table.value}"
            for table in TableName
            if now[table].rules != totals.get(table, 0) or now[table] != before.get(table, now[table])
        )

    def _checksum(self, table: TableName) -> _Checksum:
        rules = check = 0
        for line in self._listed(table):
            tokens = line.split(b" ", 2)
            if tokens[0] == b"-A" and is_ours(table, tokens[1].decode()):
                rules, check = rules + 1, zlib.crc32(line, check)
        return _Checksum(rules, check)


def drift_monitor(tools: Tools, read_state: Callable[[], bytes]) -> DriftMonitor:
    """The monitor for the variant of the tools; ``read_state``: from `state_reader`."""
    if tools.variant is Variant.NFT:
        return NftDriftMonitor(tools.family)
    return LegacyDriftMonitor(tools.saved, read_state)
