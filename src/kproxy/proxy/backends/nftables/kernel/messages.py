"""Encoder of commands to nfnetlink messages, which are sent instead of text for ``nft``.

The ``nft`` tool reads all tables before it writes to one, and a set that a newer ``nft`` created crashes it
(kubernetes/kubernetes#136786); process and reading also take ten times as long as the kernel for a small change.
Message and attribute numbers are those of linux/netfilter/nf_tables.h; the descriptions that make ``nft list`` print
what `Renderer` writes are those of libnftnl's udata.h.  Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kproxy.linux.netfilter.patterns import FieldName, Selector
from kproxy.linux.netfilter.rules import Chain, Point, Rule
from kproxy.linux.netlink import NetlinkFlag, attribute, nested, netfilter_header
from kproxy.model.network import Family
from kproxy.proxy.backends.nftables.commands import (
    TABLE_COMMENT,
    AddChain,
    AddCollection,
    AddElements,
    AddRules,
    AddTable,
    Command,
    DeleteChain,
    DeleteElements,
    DeleteTable,
    FlushChain,
)
from kproxy.proxy.backends.nftables.kernel import userdata
from kproxy.proxy.backends.nftables.kernel.elements import ElementEncoder, key_length, registers_per_address
from kproxy.proxy.backends.nftables.kernel.expressions import Expressions
from kproxy.proxy.backends.nftables.rules import TABLE, CollectionDefinition, ElementKey, Holds, Value

NFPROTO = {Family.IPV4: 2, Family.IPV6: 10}
SUBSYSTEM = 10

NEW_TABLE, GET_TABLE, DELETE_TABLE = 0, 1, 2
NEW_CHAIN, DELETE_CHAIN = 3, 5
NEW_RULE, DELETE_RULE = 6, 8
NEW_SET, GET_SET = 9, 10
NEW_ELEMENTS, GET_ELEMENTS, DELETE_ELEMENTS = 12, 13, 14

SET_INTERVAL, SET_MAP, SET_TIMEOUT, SET_EVALUATED, SET_CONCATENATED = 0x4, 0x8, 0x10, 0x20, 0x80
_VERDICT_SIZE = 16
_HOOK_NUMBERS = {
    Point.PREROUTING: 0,
    Point.INPUT: 1,
    Point.FORWARD: 2,
    Point.OUTPUT: 3,
    Point.POSTROUTING: 4,
}


class BatchMessage(NamedTuple):
    """One message of a batch: its number within nftables, flags, and body."""

    kind: int
    flags: NetlinkFlag
    body: bytes


def encode_string(value: str) -> bytes:
    """A string in UTF-8 with a final zero byte."""
    return value.encode() + b"\0"


def encode_be32(value: int) -> bytes:
    """A number in network order."""
    return struct.pack(">I", value & 0xFFFF_FFFF)


@dataclass(slots=True)
class Encoder:
    """Encodes one transaction of one family."""

    family: Family
    _header: bytes = field(init=False)
    _table: bytes = field(init=False)
    _expressions: Expressions = field(init=False)
    _set_ids: int = 0
    _encoders: dict[str, ElementEncoder] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._header = netfilter_header(NFPROTO[self.family])
        self._table = attribute(1, encode_string(TABLE))
        self._expressions = Expressions(self.family)

    def messages(self, command: Command) -> Iterator[BatchMessage]:
        """The messages of a command."""
        match command:
            case AddTable():
                comment = attribute(6, userdata.comment_userdata(0, TABLE_COMMENT))
                yield self._message(NEW_TABLE, NetlinkFlag.CREATE, attribute(2, encode_be32(0)), comment)
            case DeleteTable():
                yield self._message(DELETE_TABLE, NetlinkFlag(0))
            case AddCollection(collection):
                yield self._message(NEW_SET, NetlinkFlag.CREATE, *self._set(collection))
            case AddElements(collection, elements, lives):
                yield self._elements(NEW_ELEMENTS, NetlinkFlag.CREATE, collection, elements, lives)
            case DeleteElements(collection, elements):
                yield self._elements(DELETE_ELEMENTS, NetlinkFlag(0), collection, elements, ())
            case _:
                yield from self._chain_body(command)

    def _chain_body(self, command: AddChain | AddRules | FlushChain | DeleteChain) -> Iterator[BatchMessage]:
        match command:
            case AddChain(chain):
                yield self._message(NEW_CHAIN, NetlinkFlag.CREATE, *_chain(chain))
            case AddRules(chain):
                for rule in chain.rules:
                    yield self._message(
                        NEW_RULE, NetlinkFlag.CREATE | NetlinkFlag.APPEND, *self._rule(chain, rule)
                    )
            case FlushChain(name):
                yield self._message(DELETE_RULE, NetlinkFlag(0), attribute(2, encode_string(name)))
            case DeleteChain(name):
                yield self._message(DELETE_CHAIN, NetlinkFlag(0), attribute(3, encode_string(name)))

    def _message(self, kind: int, flags: NetlinkFlag, *attributes: bytes) -> BatchMessage:
        return BatchMessage(kind, flags, b"".join((self._header, self._table, *attributes)))

    def _rule(self, chain: Chain, rule: Rule) -> Iterator[bytes]:
        yield attribute(2, encode_string(chain.name))
        yield nested(4, *self._expressions.encode_rule(rule))
        if rule.comment:
            yield attribute(7, userdata.comment_userdata(0, rule.comment))

    def _set(self, collection: CollectionDefinition) -> Iterator[bytes]:
        self._set_ids += 1
        flags = _set_flags(collection)
        yield attribute(2, encode_string(collection.name))
        if flags:
            yield attribute(3, encode_be32(flags))
        yield attribute(4, encode_be32(userdata.key_type(collection.key, self.family)))
        yield attribute(5, encode_be32(key_length(collection.key, self.family)))
        if collection.holds is not Holds.NOTHING:
            yield attribute(6, encode_be32(userdata.data_type(collection.holds, self.family)))
            size = (
                4 * registers_per_address(self.family) + 4
                if collection.holds is Holds.ENDPOINT
                else _VERDICT_SIZE
            )
            yield attribute(7, encode_be32(size))
        yield nested(9, *_set_description(collection, self.family))
        yield attribute(10, encode_be32(self._set_ids))
        yield attribute(13, userdata.collection_userdata(collection, self.family))

    def _elements(
        self,
        kind: int,
        flags: NetlinkFlag,
        collection: CollectionDefinition,
        elements: tuple[tuple[ElementKey, Value], ...],
        timeouts: tuple[int, ...],
    ) -> BatchMessage:
        encoder = self._encoders.get(collection.name)
        if encoder is None:
            encoder = self._encoders[collection.name] = ElementEncoder(collection)
        encode = encoder.encode
        if timeouts:
            packed = [encode(key, value, left) for (key, value), left in zip(elements, timeouts, strict=True)]
        else:
            packed = [encode(key, value) for key, value in elements]
        return self._message(kind, flags, attribute(2, encode_string(collection.name)), nested(3, *packed))


def _chain(chain: Chain) -> Iterator[bytes]:
    yield attribute(3, encode_string(chain.name))
    if chain.hook is not None:
        number, priority = _HOOK_NUMBERS[chain.hook.point], chain.hook.priority
        yield nested(4, attribute(1, encode_be32(number)), attribute(2, encode_be32(priority)))
        yield attribute(7, encode_string("nat" if chain.hook.nat else "filter"))
    if chain.comment:
        yield attribute(12, userdata.comment_userdata(0, chain.comment))


def _set_flags(collection: CollectionDefinition) -> int:
    flags = SET_MAP if collection.holds is not Holds.NOTHING else 0
    if collection.interval:
        flags |= SET_INTERVAL | (SET_CONCATENATED if len(collection.key) > 1 else 0)
    if collection.filled_up_to is not None:
        flags |= SET_TIMEOUT | SET_EVALUATED
    return flags


def _set_description(collection: CollectionDefinition, family: Family) -> Iterator[bytes]:
    """Description of a set: its size, or, for ranges of several parts, the length of each part."""
    if collection.filled_up_to is not None:
        yield attribute(1, encode_be32(collection.filled_up_to))
    if collection.interval and len(collection.key) > 1:
        lengths = (_part_length(part, family) for part in collection.key)
        yield nested(2, *(nested(1, attribute(1, encode_be32(length))) for length in lengths))


def _part_length(part: Selector, family: Family) -> int:
    match part:
        case FieldName.PROTOCOL:
            return 1
        case FieldName.PORT:
            return 2
        case FieldName.SOURCE | FieldName.DESTINATION:
            return family.bits // 8
        case _:
            return 4
