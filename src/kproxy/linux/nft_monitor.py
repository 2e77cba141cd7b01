"""What others change in nf_tables, as the kernel tells whoever listens.

Used by the kernel modules of those backends whose rules live there: nftables mode, and iptables mode by iptables-nft.  Nothing
is asked of the kernel, so a look costs one system call while nobody changes anything.

Messages: linux/netfilter/nf_tables.h; group NFNLGRP_NFTABLES of nfnetlink.
"""

from __future__ import annotations

import enum
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from weakref import WeakSet

from kproxy.linux import host
from kproxy.linux.netlink import attributes, first_message_type, messages
from kproxy.linux.netlink_multicast import MulticastListener
from kproxy.model.network import Family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NFPROTO = {Family.IPV4: 2, Family.IPV6: 10}

_GROUP = 7
_SUBSYSTEM = 10 << 8
_NEW_GENERATION = _SUBSYSTEM | 15
_GENERATION_PROCESS_ID, _GENERATION_PROCESS = 2, 3
_HEADER = 4
_TABLE = 1
_MAX_LOGGED = 5


class NftChangeKind(enum.Enum):
    """What was changed: the number of its message, how it is called, and the attribute that names it in its table."""

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
    """``name`` is the chain, set or table that was changed, ``body`` all the kernel tells, ``by`` the program's name and process ID."""

    kind: NftChangeKind
    family: Family
    table: str
    name: str
    body: bytes
    by: str

    def __str__(self) -> str:
        """For the log."""
        what = f"{self.kind.value[1]} {self.name}"
        return f"{what} by {self.by}" if self.by else what


class NftMonitor:
    """Hears of all changes in the network namespace it was made in, but for those it is told to ignore."""

    _all: ClassVar[WeakSet[NftMonitor]] = WeakSet()
    _pauses: ClassVar[int] = 0
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, substring: bytes) -> None:
        """Begin to listen; only changes whose message holds ``substring`` are of interest.  `HostError` when it cannot be."""
        self._substring = substring
        self._listener = MulticastListener(host.NETLINK_NETFILTER, _GROUP)
        with self._lock:
            self._all.add(self)
            if self._pauses:
                self.set_listening(on=False)

    @classmethod
    @contextmanager
    def paused(cls) -> Iterator[None]:
        """Meanwhile no monitor of this process listens, whatever it was told to ignore; what it has heard it keeps, what others change meanwhile it does not hear.

        For changes by the ten thousand: the kernel makes a message of each, as long as anybody listens to it.
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

    def set_listening(self, *, on: bool) -> None:
        """What was heard before a pause can still be asked for."""
        if on:
            self._listener.resume()
        else:
            self._listener.pause()

    def ignore_port(self, port: int, mask: int = host.ALL_BITS) -> None:
        """From now on, what sockets with that netlink port do is not heard; 0: nothing is ignored."""
        self._listener.ignore_port(port, mask)

    def discard_pending(self) -> None:
        """What was changed up to now does not matter."""
        self._listener.receive()

    def changes(self) -> list[NftChange] | None:
        """What was changed since the last call; None when so much was that some of it went unheard."""
        datagrams = self._listener.receive()
        return None if datagrams is None else list(_changes(datagrams, self._substring))


def format_changes(changes: Iterable[NftChange]) -> tuple[str, ...]:
    """Changes in words for a log, what happened to tables first and no more than a line holds."""
    ordered = sorted(changes, key=lambda change: change.kind not in _OF_TABLES)
    texts = tuple(dict.fromkeys(map(str, ordered)))
    return texts[:_MAX_LOGGED] + (("and more",) if len(texts) > _MAX_LOGGED else ())


def _changes(datagrams: Iterable[bytes], substring: bytes) -> Iterator[NftChange]:
    """Each transaction's end tells whose it was."""
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
