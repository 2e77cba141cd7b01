"""Applies plans to the kernel's nf_tables of one family.

The state applied last is taken for the table's.  After any failure it is discarded, and the next `apply` replaces the
whole table in one transaction.  Of the old table only the clients under affinity are read before, so that they keep
their endpoints (``affinity.stays-over-restart``, ``restart.rules-kept``).
"""

from __future__ import annotations

import errno
import os
import secrets
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from ipaddress import ip_address

from kproxy.linux import host
from kproxy.linux.conntrack import invalid_drops
from kproxy.linux.host import HostError, Reason
from kproxy.linux.netlink import attribute, attributes, netfilter_header
from kproxy.linux.netlink_socket import NetlinkError
from kproxy.linux.nft_monitor import NftMonitor, format_changes
from kproxy.model.network import Family
from kproxy.proxy.backends import AffinityUse, Applied
from kproxy.proxy.backends.nftables import names
from kproxy.proxy.backends.nftables.commands import (
    AddElements,
    Command,
    DeleteElements,
    DeleteTable,
    format_command,
)
from kproxy.proxy.backends.nftables.desired_state import DesiredState, desired_state
from kproxy.proxy.backends.nftables.diff import Clients, Leftovers, Rewrite, Transaction, diff
from kproxy.proxy.backends.nftables.kernel import messages
from kproxy.proxy.backends.nftables.kernel.batch import Nftables, list_items
from kproxy.proxy.backends.nftables.render import Renderer
from kproxy.proxy.backends.nftables.rules import TABLE, ElementKey
from kproxy.proxy.backends.nftables.static_rules import DEFAULT_AFFINITY_CLIENTS, Options
from kproxy.proxy.plan import Plan

OLDEST_KERNEL = (5, 13)
"""Oldest kernel accepted (``nft.min-versions``); the design itself needs 5.10, for comments on chains."""

SKIP_KERNEL_CHECK = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK"

_ANY_FAMILY = 0xFFFFFFFE
_FIRST_PORT = secrets.randbits(30) << 1 | 1 << 31
_PORT = {family: _FIRST_PORT + number for number, family in enumerate(Family)}
"""Netlink ports of our own, which distinguish our changes from those of other processes."""

_ABSENT = frozenset({errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP, errno.EAFNOSUPPORT})
"""Errnos of a query for a table that does not exist, and of all queries on a kernel without nf_tables."""
_ELEMENTS, _KEY, _EXPIRATION = 3, 1, 5
_SET_DESCRIPTION, _SET_SIZE = 9, 1
_SET_COUNT = 20
"""NFTA_SET_COUNT, which older kernels do not return."""

_SHOWN = 160


class NftablesKernel:
    """One family's table of the network namespace this runs in."""

    def __init__(self, family: Family, options: Options | None = None) -> None:
        """Check the kernel; raises `HostError` UNSUPPORTED.  Nothing is opened yet."""
        check_kernel()
        self.family = family
        self._options = options or Options()
        self._latest: DesiredState | None = None
        self._last_applied: DesiredState | None = None
        self._leftovers: Leftovers = {}
        self._monitor: NftMonitor | None = None
        self._pausing = True
        """False after changes were missed in a pause: the monitor then goes on during the next full write."""

    def apply(self, plan: Plan) -> Applied:
        """Apply a plan; raises `HostError`, and the next call then replaces the table."""
        started = time.monotonic()
        desired = self._latest = desired_state(plan, self._options, self._latest)
        self._listen()
        with Nftables(_PORT[self.family]) as nftables:
            return self._apply(nftables, desired, started)

    def _apply(self, nftables: Nftables, desired: DesiredState, started: float) -> Applied:
        believed, self._last_applied = self._last_applied, None
        transaction, refused = diff(believed, desired, self._leftovers), None
        try:
            elements = None if isinstance(transaction, Rewrite) else self._commit(nftables, transaction)
        except HostError as error:
            transaction, refused = Rewrite(desired), str(error)
        rewritten = isinstance(transaction, Rewrite)
        if rewritten:
            with NftMonitor.paused() if self._pausing else nullcontext():
                elements = self._commit(nftables, Rewrite(desired, self._clients(nftables)))
            self._pausing = True
        self._last_applied, self._leftovers = desired, transaction.leftovers
        return Applied(rewritten, {"elements": elements or 0}, refused, seconds=time.monotonic() - started)

    def refresh_options(self) -> bool:
        """Read the options that depend on this machine again; True if they changed, then the table must be written again."""
        drops, known = invalid_drops(), self._options
        if (drops.forwarded, drops.input) == (known.drop_invalid, known.drop_invalid_input):
            return False
        self._options = replace(known, drop_invalid=drops.forwarded, drop_invalid_input=drops.input)
        return True

    def forget(self) -> None:
        """Discard the state applied last: the next `apply` writes everything."""
        self._last_applied = None

    def find_drift(self, *, thorough: bool = True) -> tuple[str, ...]:  # noqa: ARG002 - any look is quick
        """Changes in our table by other processes since the last call or full write; empty before the first `apply`.

        After a full write in whose pause others changed any table, that is reported, as it may have been ours.

        Costs microseconds while no process changes nf_tables.
        """
        if self._last_applied is None or self._monitor is None:
            return ()
        changes = self._monitor.changes()
        if self._monitor.missed_changes:
            self._monitor.missed_changes, self._pausing = False, False
            return ("nf_tables was changed while the table was written",)
        if changes is None:
            return ("more was changed in nf_tables than the kernel could report",)
        return format_changes(c for c in changes if (c.family, c.table) == (self.family, TABLE))

    def notifiers(self) -> tuple[int, ...]:
        """The monitor's socket; none before the first `apply`."""
        return (self._monitor.fileno(),) if self._monitor else ()

    def _listen(self) -> None:
        """Start the monitor before the first full write; before a later one discard pending notifications."""
        if self._monitor is None:
            self._monitor = NftMonitor(messages.encode_string(TABLE))
            self._monitor.ignore_port(_FIRST_PORT, _ANY_FAMILY)
        elif self._last_applied is None:
            self._monitor.discard_pending()
            self._monitor.missed_changes = False

    def affinity_clients(self) -> Clients:
        """The clients that are under affinity now."""
        with Nftables() as nftables:
            return self._clients(nftables)

    def cleanup(self) -> None:
        """Remove the table, ours or kube-proxy's, if it exists (``cleanup.nothing-left``)."""
        self._last_applied = None
        with Nftables() as nftables:
            if not self._has_table(nftables):
                return
            encoder = messages.Encoder(self.family)
            answer = nftables.commit(encoder.messages(DeleteTable()))
        if answer is not None:
            raise NetlinkError(f"delete table {self._table_name}", answer.errno)

    @property
    def _table_name(self) -> str:
        return f"{Renderer(self.family).family_keyword} {TABLE}"

    def _commit(self, nftables: Nftables, transaction: Transaction) -> int | None:
        """Commit the batches; returns the number of elements added and removed, None if there was nothing to do."""
        counts = [self._commit_batch(nftables, batch) for batch in transaction.batches()]
        done = [count for count in counts if count is not None]
        return sum(done) if done else None

    def _commit_batch(self, nftables: Nftables, batch: Iterable[Command]) -> int | None:
        encoder, count = messages.Encoder(self.family), 0
        sent: list[messages.BatchMessage] = []
        for command in batch:
            if isinstance(command, AddElements | DeleteElements):
                count += len(command.elements)
            sent += encoder.messages(command)
        if not sent:
            return None
        answer = nftables.commit(sent)
        if answer is not None:
            raise NetlinkError(self._render_message(batch, answer.number), answer.errno)
        return count

    def _render_message(self, batch: Iterable[Command], number: int) -> str:
        """Text of the command that the message of that number belongs to, for an error."""
        encoder, renderer = messages.Encoder(self.family), Renderer(self.family)
        owners = [(command, n) for command in batch for n, _ in enumerate(encoder.messages(command))]
        if not 0 < number <= len(owners):
            return f"nftables transaction on table {self._table_name}"
        command, index = owners[number - 1]
        texts = list(format_command(command, renderer))
        return texts[min(index, len(texts) - 1)][:_SHOWN]

    def _has_table(self, nftables: Nftables) -> bool:
        body = netfilter_header(messages.NFPROTO[self.family]) + attribute(1, messages.encode_string(TABLE))
        try:
            nftables.get(messages.SUBSYSTEM << 8 | messages.GET_TABLE, body)
        except NetlinkError as error:
            if error.number in _ABSENT:
                return False
            raise
        return True

    def _clients(self, nftables: Nftables) -> Clients:
        try:
            answers = list(
                nftables.dump(messages.SUBSYSTEM << 8 | messages.GET_ELEMENTS, _clients_set(self.family))
            )
        except HostError as error:
            if error.reason is Reason.MISSING:
                return {}
            raise
        items = (item for answer in answers for item in _list_elements(answer))
        return dict(found for item in items if (found := self._parse_client(item)) is not None)

    def _parse_client(self, item: memoryview) -> tuple[ElementKey, int] | None:
        """A client and its remaining milliseconds; None if the element does not have the format of this proxy."""
        found, size = attributes(item), self.family.bits // 8
        key = bytes(attributes(found[_KEY])[1])
        if len(key) != size + 4 or _EXPIRATION not in found:
            return None
        number = int.from_bytes(key[size:], sys.byteorder)
        return (ip_address(key[:size]), number), struct.unpack(">Q", found[_EXPIRATION])[0]


def _list_elements(answer: memoryview) -> Iterator[memoryview]:
    return list_items(attributes(answer[4:]).get(_ELEMENTS, memoryview(b"")))


def check_kernel() -> None:
    """Raise `HostError` UNSUPPORTED on a kernel that is too old, unless the environment disables the check."""
    if os.environ.get(SKIP_KERNEL_CHECK):
        return
    release = host.read_sysctl("kernel/osrelease")
    parts = release.replace("-", ".").split(".")
    version = tuple(int(part) for part in parts[:2] if part.isdigit())
    if version < OLDEST_KERNEL:
        oldest = ".".join(map(str, OLDEST_KERNEL))
        raise HostError("mode nftables", f"kernel {release} is older than {oldest}", Reason.UNSUPPORTED)


def machine_options(masquerade_bit: int, affinity_clients: int = DEFAULT_AFFINITY_CLIENTS) -> Options:
    """Options that depend on this machine, read now, with those of the configuration.

    Clauses ``conntrack.invalid-not-leaked``, ``conntrack.liberal.set``.
    """
    drops = invalid_drops()
    return Options(
        1 << masquerade_bit,
        drop_invalid=drops.forwarded,
        drop_invalid_input=drops.input,
        affinity_clients=affinity_clients,
    )


def affinity_use(family: Family) -> AffinityUse | None:
    """Clients that the table remembers, and how many it may; None without a table of ours; raises `HostError`."""
    with Nftables() as nftables:
        try:
            found = attributes(
                nftables.get(messages.SUBSYSTEM << 8 | messages.GET_SET, _clients_set(family))[4:]
            )
        except HostError as error:
            if error.reason is Reason.MISSING:
                return None
            raise
        limit = int.from_bytes(attributes(found[_SET_DESCRIPTION]).get(_SET_SIZE, b""))
        counted = found.get(_SET_COUNT)
        clients = (
            len(NftablesKernel(family).affinity_clients()) if counted is None else int.from_bytes(counted)
        )
    return AffinityUse(clients, limit)


def _clients_set(family: Family) -> bytes:
    """Body of a query for the set of clients."""
    table = attribute(1, messages.encode_string(TABLE))
    name = attribute(2, messages.encode_string(names.AFFINITY_CLIENTS))
    return netfilter_header(messages.NFPROTO[family]) + table + name


def remove_table(family: Family) -> None:
    """Remove the table of this backend or of kube-proxy; no effect on a clean machine (``life.cleanup.stateless``)."""
    NftablesKernel(family).cleanup()
