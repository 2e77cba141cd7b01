"""The device that makes service addresses local: kube-ipvs0, of kind dummy, down, without ARP (``ipvs.dummy``).

All failures are `kproxy.host.HostError`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address

from kproxy.backends.ipvs.names import DEVICE
from kproxy.host import HostError, Netlink, Reason, refusal
from kproxy.net import Address, Family, family_of
from kproxy.netlink import Flag, attribute, attributes, messages, nested
from kproxy.notifications import Listener

_NEW_LINK, _DELETE_LINK, _GET_LINK, _NEW_ADDRESS, _DELETE_ADDRESS, _GET_ADDRESS = 16, 17, 18, 20, 21, 22
_IFLA_NAME, _IFLA_LINKINFO, _INFO_KIND = 3, 18, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_LINK_HEADER = struct.Struct("=BxHiII")
_ADDRESS_HEADER = struct.Struct("=BBBBI")
_NO_DAD, _SCOPE_GLOBAL = 0x02, 0
_AF = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_GROUPS = {Family.IPV4: 5, Family.IPV6: 9}
"""linux/rtnetlink.h: RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR."""


def ensure() -> None:
    """Make the device unless it is there."""
    kind = nested(_IFLA_LINKINFO, attribute(_INFO_KIND, b"dummy\0"))
    body = _LINK_HEADER.pack(0, 0, 0, 0, 0) + attribute(_IFLA_NAME, DEVICE.encode() + b"\0") + kind
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        (number,) = netlink.send_all([(_NEW_LINK, Flag.CREATE | Flag.EXCL, body)])
    if number == errno.EPERM:
        raise refusal(f"create device {DEVICE}", number)
    if number not in {0, errno.EEXIST}:
        fix = f"{os.strerror(number)} (a kernel with CONFIG_DUMMY, or modprobe dummy)"
        raise HostError(f"create device {DEVICE}", fix, Reason.UNSUPPORTED)


def remove() -> None:
    """Remove the device with all its addresses, if it is there."""
    body = _LINK_HEADER.pack(0, 0, 0, 0, 0) + attribute(_IFLA_NAME, DEVICE.encode() + b"\0")
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        (number,) = netlink.send_all([(_DELETE_LINK, Flag(0), body)])
    if number not in {0, errno.ENODEV}:
        raise refusal(f"delete device {DEVICE}", number)


def bind(addresses: Sequence[Address]) -> None:
    """Add addresses to the device; those that are there already stay."""
    _change(_NEW_ADDRESS, Flag.CREATE | Flag.EXCL, addresses, {0, errno.EEXIST})


def unbind(addresses: Sequence[Address]) -> None:
    """Take addresses from the device."""
    _change(_DELETE_ADDRESS, Flag(0), addresses, {0, errno.EADDRNOTAVAIL})


def node_and_device_addresses(family: Family) -> tuple[frozenset[Address], frozenset[Address]]:
    """The addresses of the family on all other interfaces, and those on the device."""
    index = _index() or -1
    node: set[Address] = set()
    device: set[Address] = set()
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        header = _ADDRESS_HEADER.pack(_AF[family], 0, 0, 0, 0)
        for payload in netlink.dump(_GET_ADDRESS, header):
            address = _address(payload)
            if address is not None and family_of(address) is family:
                (device if _ADDRESS_HEADER.unpack_from(payload)[4] == index else node).add(address)
    return frozenset(node), frozenset(device)


class News:
    """Hears whether addresses of a family came or went on other interfaces than the device.

    Asking costs one system call while nobody changes any.
    """

    def __init__(self, family: Family) -> None:
        """Begin to listen; `HostError` when it cannot be."""
        self._listener = Listener(socket.NETLINK_ROUTE, _GROUPS[family])

    def any(self) -> bool:
        """Whether there was a change since the last call, or so many that some went unheard."""
        heard = self._listener.heard()
        if not heard:
            return heard is None
        index = _index() or -1
        told = (found.payload for data in heard for found in messages(data))
        return any(_ADDRESS_HEADER.unpack_from(payload)[4] != index for payload in told)


def exists() -> bool:
    """Whether the device is there."""
    return _index() is not None


def _index() -> int | None:
    with contextlib.suppress(OSError):
        return socket.if_nametoindex(DEVICE)
    return None


def _change(kind: int, flags: Flag, addresses: Sequence[Address], fine: set[int]) -> None:
    index = _index()
    if index is None:
        raise HostError(f"change the addresses of {DEVICE}", "the device is gone", Reason.MISSING)
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        results = netlink.send_all((kind, flags, body) for body in _bodies(addresses, index))
    for address, number in zip(addresses, results, strict=True):
        if number not in fine:
            raise refusal(f"change address {address} of {DEVICE}", number)


def _bodies(addresses: Sequence[Address], index: int) -> Iterator[bytes]:
    for address in addresses:
        header = _ADDRESS_HEADER.pack(
            _AF[family_of(address)], address.max_prefixlen, _NO_DAD, _SCOPE_GLOBAL, index
        )
        yield header + attribute(_IFA_LOCAL, address.packed) + attribute(_IFA_ADDRESS, address.packed)


def _address(payload: memoryview) -> Address | None:
    found = attributes(payload[_ADDRESS_HEADER.size :])
    raw = bytes(found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS) or b"")
    if not raw:
        return None
    return IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw)
