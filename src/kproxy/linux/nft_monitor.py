"""Monitor of nf_tables changes made by other processes, from nfnetlink notifications (NFNLGRP_NFTABLES), and their generation.

Used by the kernel modules of those backends whose rules are in nf_tables: nftables mode, and iptables mode by
iptables-nft. Nothing is dumped, so a check costs one system call while nothing changes.

Messages: linux/netfilter/nf_tables.h.
"""

from __future__ import annotations

import enum
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from weakref import WeakSet

from kproxy.linux.host import HostError
from kproxy.linux.netlink import (
    attributes,
    first_message_type,
    messages,
    netfilter_header,
)
from kproxy.linux.netlink_multicast import ALL_BITS, MulticastListener
from kproxy.linux.netlink_socket import NETLINK_NETFILTER, Netlink
from kproxy.model.network import Family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NFPROTO = {Family.IPV4: 2, Family.IPV6: 10}

_GROUP = 7
_SUBSYSTEM = 10 << 8
_NEW_GENERATION, _GET_GENERATION = _SUBSYSTEM | 15, _SUBSYSTEM | 16
_GENERATION_ID, _GENERATION_PROCESS_ID, _GENERATION_PROCESS = 1, 2, 3
_HEADER = 4
_UNSPECIFIED = 0
_TABLE = 1
_MAX_LOGGED = 5


class NftChangeKind(enum.Enum):
    """Kind of change: its message type, its name in logs, and the attribute with the object's name."""

    NEW_TABLE = (0, "table made", 1)
    DELETE_TABLE = (2, "table deleted", 1)
    NEW_CHAIN = (3, "chain made", 3)
    DELETE_CHAIN = (5, "chain deleted", 3)
    NEW_RULE = (6, "rule added to", 2)
    DELETE_RULE = (8, "rule deleted from", 2)
    NEW_SET = (9, "set made", 2)
    DELETE_SET = (11, "set deleted", 2)
    NEW_ELEMENT = (12, "element added to", 2)
    DELETE_ELEMENT = (14, "element deleted from", 2)


_KINDS = {_SUBSYSTEM | kind.value[0]: kind for kind in NftChangeKind}


_OF_TABLES = frozenset({NftChangeKind.NEW_TABLE, NftChangeKind.DELETE_TABLE})


class NftChange(NamedTuple):
    """One change: ``name`` of the chain, set or table, ``body`` of the message, ``by``: name and process ID of the process."""

    kind: NftChangeKind
    family: Family
    table: str
    name: str
    body: bytes
    by: str

    def __str__(self) -> str:
        """Text for the log."""
        what = f"{self.kind.value[1]} {self.name}"
        return f"{what} by {self.by}" if self.by else what


class NftMonitor:
    """Monitor of changes in the network namespace it was made in, except those by ignored netlink ports."""

    _all: ClassVar[WeakSet[NftMonitor]] = WeakSet()
    _pauses: ClassVar[int] = 0
    _own_transactions: ClassVar[int] = 0
    _others_transactions: ClassVar[int | None] = None
    """Number of others' transactions, plus a constant, when the last pause began or ended."""
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, substring: bytes) -> None:
        """Join the group; only messages that contain the bytes ``substring`` are reported.

        `HostError` when joining fails.
        """
        self._substring = substring
        self.missed_changes = False
        """True after a pause in which there were more transactions than were counted; the owner resets it."""
        self._listener = MulticastListener(NETLINK_NETFILTER, _GROUP)
        with self._lock:
            self._all.add(self)
            if self._pauses:
                self.set_listening(on=False)

    def fileno(self) -> int:
        """Descriptor that is readable when something was changed, not only what is reported."""
        return self._listener.fileno()

    @classmethod
    @contextmanager
    def paused(cls) -> Iterator[None]:
        """Pause all monitors of this process for the length of the context.

        Notifications received before are kept; of changes made meanwhile by other processes only `missed_changes`
        remains, and that only where our own transactions are counted. For changes by the ten thousand: the kernel
        makes a message of each, as long as a socket is a member of the group.
        """
        cls._add_pause(1)
        try:
            yield
        finally:
            cls._add_pause(-1)

    @classmethod
    def _add_pause(cls, more: int) -> None:
        with cls._lock:
            before, cls._pauses = cls._pauses, cls._pauses + more
            if before and cls._pauses:
                return
            for monitor in cls._all:
                monitor.set_listening(on=not cls._pauses)
            known, others = cls._others_transactions, cls._count_others()
            if not cls._pauses and known is not None and others is not None and others != known:
                for monitor in cls._all:
                    monitor.missed_changes = True
            cls._others_transactions = others

    @classmethod
    def _count_others(cls) -> int | None:
        """Number of others' transactions, plus a constant: the generation less our own.

        None where it cannot be read; then our own transaction has failed, most likely, and all is written again.
        """
        try:
            return int.from_bytes(nft_generation()) - cls._own_transactions
        except HostError:
            return None

    @classmethod
    def count_own_transaction(cls) -> None:
        """Count a transaction that this process has committed."""
        with cls._lock:
            cls._own_transactions += 1

    def set_listening(self, *, on: bool) -> None:
        """Join or leave the multicast group; notifications that were received before a pause stay readable."""
        if on:
            self._listener.resume()
        else:
            self._listener.pause()

    def ignore_port(self, port: int, mask: int = ALL_BITS) -> None:
        """Ignore changes by netlink sockets with that port (compared under ``mask``); 0: ignore none."""
        self._listener.ignore_port(port, mask)

    def discard_pending(self) -> None:
        """Discard the notifications received so far."""
        self._listener.receive()

    def changes(self) -> list[NftChange] | None:
        """Changes since the last call; None when the kernel dropped notifications."""
        datagrams = self._listener.receive()
        return None if datagrams is None else list(_changes(datagrams, self._substring))


def nft_generation() -> bytes:
    """Number of nf_tables' state in this thread's network namespace: another one after each transaction of any process.

    Raises `HostError`.
    """
    with Netlink(NETLINK_NETFILTER) as netlink:
        answer = netlink.get(_GET_GENERATION, netfilter_header(_UNSPECIFIED))
    return bytes(attributes(answer[_HEADER:])[_GENERATION_ID])


def format_changes(changes: Iterable[NftChange]) -> tuple[str, ...]:
    """Changes as text for a log: those of tables first, at most one line's worth."""
    ordered = sorted(changes, key=lambda change: change.kind not in _OF_TABLES)
    texts = tuple(dict.fromkeys(map(str, ordered)))
    return texts[:_MAX_LOGGED] + (("and more",) if len(texts) > _MAX_LOGGED else ())


def _changes(datagrams: Iterable[bytes], substring: bytes) -> Iterator[NftChange]:
    """Changes in a sequence of datagrams.

    The process name and ID come from the NEWGEN message that ends each transaction.
    """
    waiting: list[NftChange] = []
    for data in datagrams:
        if first_message_type(data) == _NEW_GENERATION:
            yield from (change._replace(by=_process(data)) for change in waiting)
            waiting = []
        elif substring in data:
            waiting += filter(None, (_change(found.type, found.payload) for found in messages(data)))
    yield from waiting


def _change(number: int, payload: memoryview) -> NftChange | None:
    kind = _KINDS.get(number)
    family = next((family for family, value in NFPROTO.items() if payload[0] == value), None)
    if kind is None or family is None:
        return None
    found = attributes(payload[_HEADER:])
    table, name = (_text(found.get(number, memoryview(b""))) for number in (_TABLE, kind.value[2]))
    return NftChange(kind, family, table, name, bytes(payload), "")


def _process(data: bytes) -> str:
    found = attributes(next(iter(messages(data))).payload[_HEADER:])
    name = _text(found.get(_GENERATION_PROCESS, memoryview(b"")))
    number = found.get(_GENERATION_PROCESS_ID)
    return f"{name} (PID {int.from_bytes(number)})" if name and number else name


def _text(payload: memoryview) -> str:
    return bytes(payload).rstrip(b"\0").decode(errors="replace")
