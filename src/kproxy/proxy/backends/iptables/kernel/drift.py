"""Drift monitors of iptables mode: whether another program changed our chains since we wrote them.

Theory of operation
-------------------
Only *that* something changed is found out, not what: every repair writes everything.  The two variants of iptables need two ways.

* iptables-nft: the kernel multicasts each change of nf_tables with the netlink port, mostly the process ID, that made it.  Changes of the process that we run
  are ignored (`DriftMonitor.ignore_process`), all others in chains of ours are drift.  A look costs one system call.
  Before everything is written the queue is discarded, and while it is written all monitors are paused: tens of thousands
  of own changes would overflow the queue.
* iptables-legacy: the kernel reports nothing.  The rules in our chains are counted and summed up from what the listing tool prints,
  in thorough looks only, and at most for a hundredth of the time.  The first sum after a write is taken as what was written,
  provided that the count is what it should be.

Jumps from builtin chains and the canary chains are looked for by the applier, in thorough looks.
"""

from __future__ import annotations

import re
import time
import zlib
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kproxy.linux.nft_monitor import NftChange, NftChangeKind, NftMonitor, format_changes
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.iptables.static_rules import hook_rules
from kproxy.proxy.backends.xtables.kernel.tools import Variant
from kproxy.proxy.backends.xtables.rules import Jump, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from kproxy.proxy.backends.xtables.kernel.tools import Tools
    from kproxy.proxy.backends.xtables.rules import ChainName

_CHAIN_PREFIX = b"KUBE-"
_TABLES = frozenset(table.value for table in Table)
_BUILTIN = frozenset(hook.hook.value for hook in hook_rules(localhost=True))
_JUMPED_TO = re.compile(
    b"(?:%s)\0"
    % b"|".join(
        sorted(
            rule.target.chain.encode()
            for hook in hook_rules(localhost=False)
            for rule in hook.rules
            if isinstance(rule.target, Jump)
        )
    )
)
_SHARE = 100
"""Rules are not summed up in more than one of so many seconds."""


class DriftMonitor(Protocol):
    """Finds out."""

    def ignore_process(self, process: int) -> None:
        """What that process changes is ours; 0: it has ended."""

    def reset(self) -> None:
        """All is about to be written, so what was does not matter."""

    def paused(self) -> AbstractContextManager[None]:
        """While all is written."""

    def find_drift(self, totals: Mapping[Table, int], *, thorough: bool) -> tuple[str, ...]:
        """What was changed; ``totals`` is how many rules our chains should have, ``thorough``: it may cost something."""


def is_ours(table: Table, chain: ChainName) -> bool:
    """Whether nobody else writes to a chain: KUBE-FIREWALL is the kubelet's too."""
    return chain != names.FIREWALL and (chain in names.OWN_CHAINS[table] or names.is_derived(chain))


class NftDriftMonitor:
    """For iptables-nft."""

    def __init__(self, family: Family) -> None:
        """Begin to listen; `HostError` when it cannot be."""
        self._family = family
        self._monitor = NftMonitor(_CHAIN_PREFIX)

    def ignore_process(self, process: int) -> None:
        """The kernel gives a tool its process ID as netlink port, if that is free."""
        self._monitor.ignore_port(process)

    def reset(self) -> None:
        """Hear what came up to now."""
        self._monitor.discard_pending()

    def paused(self) -> AbstractContextManager[None]:
        """The kernel would tell of tens of thousands of rules."""
        return NftMonitor.paused()

    def find_drift(self, totals: Mapping[Table, int], *, thorough: bool) -> tuple[str, ...]:  # noqa: ARG002
        """As they come.  Where too much came to be heard, the close look must do."""
        return format_changes(filter(self._concerns_us, self._monitor.changes() or ()))

    def _concerns_us(self, change: NftChange) -> bool:
        """A chain of ours, or a jump to one from a builtin chain that was taken away."""
        if change.family is not self._family or change.table not in _TABLES:
            return False
        if is_ours(Table(change.table), change.name):
            return True
        taken = change.kind is NftChangeKind.DELETE_RULE and change.name in _BUILTIN
        return taken and _JUMPED_TO.search(change.body) is not None


@dataclass(frozen=True, slots=True)
class _Checksum:
    """Our chains' rules in one table."""

    rules: int
    check: int


class LegacyDriftMonitor:
    """For iptables-legacy: ``listed`` gives the lines of one table as its tool prints them."""

    def __init__(self, listed: Callable[[Table], Iterable[bytes]]) -> None:
        """Nothing is known yet."""
        self._listed = listed
        self._checksums: dict[Table, _Checksum] = {}
        self._not_before = 0.0

    def ignore_process(self, process: int) -> None:
        """What was known is no more."""
        if process:
            self._checksums = {}

    def reset(self) -> None:
        """The same."""
        self._checksums = {}

    def paused(self) -> AbstractContextManager[None]:
        """The kernel tells nobody."""
        return nullcontext()

    def find_drift(self, totals: Mapping[Table, int], *, thorough: bool) -> tuple[str, ...]:
        """Another number of rules than there should be, or other rules than the last time."""
        started = time.monotonic()
        if not thorough or started < self._not_before:
            return ()
        now = {table: self._checksum(table) for table in Table}
        ended = time.monotonic()
        self._not_before = ended + _SHARE * (ended - started)
        before, self._checksums = self._checksums, now
        return tuple(
            f"rules of table {table.value}"
            for table in Table
            if now[table].rules != totals.get(table, 0) or now[table] != before.get(table, now[table])
        )

    def _checksum(self, table: Table) -> _Checksum:
        rules = check = 0
        for line in self._listed(table):
            tokens = line.split(b" ", 2)
            if tokens[0] == b"-A" and is_ours(table, tokens[1].decode()):
                rules, check = rules + 1, zlib.crc32(line, check)
        return _Checksum(rules, check)


def drift_monitor(tools: Tools) -> DriftMonitor:
    """The monitor for the variant of the tools."""
    return NftDriftMonitor(tools.family) if tools.variant is Variant.NFT else LegacyDriftMonitor(tools.saved)
