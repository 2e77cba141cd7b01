"""Routing of marked packets to the node itself: a rule for the mark, and a table whose only route is local.

The same as ``ip rule add priority TABLE fwmark MARK/MASK lookup TABLE`` and ``ip route add local default dev lo table TABLE``
(linux/fib_rules.h, linux/rtnetlink.h).  All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import errno
import socket
import struct
from dataclasses import dataclass

from kproxy.linux.netlink import NetlinkFlag, attribute
from kproxy.linux.netlink_socket import Netlink, NetlinkError
from kproxy.model.network import Family

_NEW_ROUTE, _DELETE_ROUTE, _NEW_RULE, _DELETE_RULE = 24, 25, 32, 33
_HEADER = struct.Struct("=BBBBBBBBI")
_NUMBER = struct.Struct("=I")
_AF = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_UNSPECIFIED_TABLE = 0
_PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL = 4, 254, 2
_RTA_INTERFACE, _RTA_TABLE = 4, 15
_TO_TABLE, _FRA_PRIORITY, _FRA_MARK, _FRA_TABLE, _FRA_MARK_MASK = 1, 6, 10, 15, 16
_LOOPBACK_INDEX = 1


@dataclass(frozen=True, slots=True)
class MarkedRoute:
    """Packets with this mark under the mask are the node's, by a table of that number, which is the rule's priority too."""

    mark: int
    mask: int
    table: int


def add_marked_route(family: Family, route: MarkedRoute) -> None:
    """Add rule and route; no effect where they exist."""
    flags = NetlinkFlag.CREATE | NetlinkFlag.EXCL
    requests = [(_NEW_ROUTE, flags, _route(family, route)), (_NEW_RULE, flags, _rule(family, route))]
    _send(f"route packets with mark {route.mark:#x} to this node", requests, {0, errno.EEXIST})


def remove_marked_route(family: Family, route: MarkedRoute) -> None:
    """Remove both; no effect where they do not exist."""
    none = NetlinkFlag(0)
    requests = [(_DELETE_RULE, none, _rule(family, route)), (_DELETE_ROUTE, none, _route(family, route))]
    missing = {0, errno.ENOENT, errno.ESRCH, errno.EAFNOSUPPORT, errno.EOPNOTSUPP}
    _send(f"remove the rule for mark {route.mark:#x}", requests, missing)


def _send(what: str, requests: list[tuple[int, NetlinkFlag, bytes]], accepted: set[int]) -> None:
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        for number in netlink.send_all(requests):
            if number not in accepted:
                raise NetlinkError(what, number)


def _route(family: Family, route: MarkedRoute) -> bytes:
    header = _HEADER.pack(
        _AF[family], 0, 0, 0, _UNSPECIFIED_TABLE, _PROTOCOL_STATIC, _SCOPE_HOST, _TYPE_LOCAL, 0
    )
    interface = attribute(_RTA_INTERFACE, _NUMBER.pack(_LOOPBACK_INDEX))
    return header + attribute(_RTA_TABLE, _NUMBER.pack(route.table)) + interface


def _rule(family: Family, route: MarkedRoute) -> bytes:
    header = _HEADER.pack(_AF[family], 0, 0, 0, _UNSPECIFIED_TABLE, 0, 0, _TO_TABLE, 0)
    return (
        header
        + attribute(_FRA_PRIORITY, _NUMBER.pack(route.table))  # without one, each rule is another one
        + attribute(_FRA_TABLE, _NUMBER.pack(route.table))
        + attribute(_FRA_MARK, _NUMBER.pack(route.mark))
        + attribute(_FRA_MARK_MASK, _NUMBER.pack(route.mask))
    )
