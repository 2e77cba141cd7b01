"""Addresses of this node, kept current by rtnetlink notifications.

A device that makes service addresses local (kube-ipvs0 in ipvs mode) is separate: its addresses are never the
node's. Beside `kproxy.linux.host`, in the network namespace of the calling thread. All failures are
`kproxy.linux.host.HostError`.

Messages: linux/rtnetlink.h, linux/if_addr.h, linux/if_link.h.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, NamedTuple

from kproxy.linux.netlink import attributes, messages
from kproxy.linux.netlink_multicast import MulticastListener
from kproxy.linux.netlink_socket import Netlink
from kproxy.model.network import Family, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproxy.linux.netlink import Message
    from kproxy.model.network import Address

_GET_ADDRESS = 22
_SOL_NETLINK, _GET_STRICT_CHECK = 270, 12
_LINKS, _ADDRESSES = frozenset({16, 17}), frozenset({20, 21})
"""Message types for a new or deleted interface, and for a new or deleted address."""

_LINK_GROUP = 1
_GROUPS = {Family.IPV4: 5, Family.IPV6: 9}
"""Multicast groups: RTNLGRP_LINK; RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR."""

_AF = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_SOMEWHERE = {Family.IPV4: "192.0.2.1", Family.IPV6: "2001:db8::1"}
"""An address of documentation (RFC 5737, RFC 3849), which no node has."""

_ADDRESS_HEADER = struct.Struct("=BBBBI")
_LINK_HEADER = struct.Struct("=BxHiII")
_IFA_ADDRESS, _IFA_LOCAL, _IFLA_NAME = 1, 2, 3


class LocalAddresses(NamedTuple):
    """Addresses of one family: ``node``, those of the node's interfaces in the kernel's order without repetition, and ``device``, those of the service device."""

    node: tuple[Address, ...]
    device: frozenset[Address]


class AddressMonitor:
    """Addresses of one family, the node's and the service device's; a query costs one system call while none of them changes."""

    def __init__(self, family: Family, device: str) -> None:
        """``device``: name of the interface whose addresses are not the node's; it need not exist."""
        self._family, self._device = family, device
        self._listener = MulticastListener(socket.NETLINK_ROUTE, _LINK_GROUP, _GROUPS[family])
        self._node: tuple[Address, ...] | None = None
        self._on_device: frozenset[Address] | None = None
        self._index: int | None = None

    def fileno(self) -> int:
        """Descriptor that is readable when the kernel reported a change."""
        return self._listener.fileno()

    def current(self) -> tuple[Address, ...]:
        """The node's addresses now; the same tuple object until the kernel reports a change."""
        self._discard_changed()
        if self._node is None:
            self._node = self._read()
        return self._node

    def on_device(self) -> frozenset[Address]:
        """The service device's addresses now, none where it does not exist; the same object until the kernel reports a change."""
        self._discard_changed()
        if self._on_device is None:
            self._on_device = self._read_device()
        return self._on_device

    def _discard_changed(self) -> None:
        """Discard what the kernel has reported a change of since the last call, all if it dropped notifications: it is read again."""
        received = self._listener.receive()
        if received is None:
            self._node = self._on_device = None
            return
        for message in (message for data in received for message in messages(data)):
            if message.type in _ADDRESSES and _index_of_address(message.payload) == self._index:
                self._on_device = None
            elif message.type in _ADDRESSES:
                self._node = None
            elif message.type in _LINKS and self._is_device(message):
                self._node = self._on_device = None

    def _is_device(self, message: Message) -> bool:
        """True if a notification of an interface is about the device."""
        index = _LINK_HEADER.unpack_from(message.payload)[2]
        name = attributes(message.payload[_LINK_HEADER.size :]).get(_IFLA_NAME, memoryview(b""))
        return index == self._index or bytes(name).rstrip(b"\0").decode(errors="replace") == self._device

    def _read(self) -> tuple[Address, ...]:
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            self._index = netlink.interface_index(self._device)
            return _read(netlink, self._family, self._index).node

    def _read_device(self) -> frozenset[Address]:
        """A kernel since 4.20 lists the addresses of no other interface for that."""
        with _StrictSocket(socket.NETLINK_ROUTE) as netlink:
            number = self._index = netlink.interface_index(self._device)
            if number is None:
                return frozenset()
            listed = _dump_addresses(netlink, self._family, number)
            return frozenset(address for index, address in listed if index == number)


def list_addresses(family: Family, device: str) -> LocalAddresses:
    """The node's and the device's addresses, read with one RTM_GETADDR dump."""
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        return _read(netlink, family, netlink.interface_index(device))


class _StrictSocket(Netlink):
    """Socket by which a dump of addresses lists those of the interface in its header alone."""

    def __init__(self, protocol: int) -> None:
        """Open it; an older kernel lists all."""
        super().__init__(protocol)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(_SOL_NETLINK, _GET_STRICT_CHECK, 1)


def source_address(family: Family) -> Address | None:
    """The address of the node's packets to the default route; None without one.  Sends nothing."""
    with socket.socket(_AF[family], socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_SOMEWHERE[family], 9))
        except OSError:
            return None
        return parse_address(probe.getsockname()[0])


def _read(netlink: Netlink, family: Family, device: int | None) -> LocalAddresses:
    listed = list(_dump_addresses(netlink, family))
    node = dict.fromkeys(address for index, address in listed if index != device)
    return LocalAddresses(tuple(node), frozenset(address for index, address in listed if index == device))


def _dump_addresses(netlink: Netlink, family: Family, device: int = 0) -> Iterator[tuple[int, Address]]:
    """Index of the interface, and each address: IFA_LOCAL where there is one (else it may be the peer's)."""
    for payload in netlink.dump(_GET_ADDRESS, _ADDRESS_HEADER.pack(_AF[family], 0, 0, 0, device)):
        found = attributes(payload[_ADDRESS_HEADER.size :])
        raw = bytes(found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS) or b"")
        with contextlib.suppress(ValueError):  # AddressValueError: an address of the other family
            yield _index_of_address(payload), (IPv4Address if family is Family.IPV4 else IPv6Address)(raw)


def _index_of_address(payload: memoryview) -> int:
    index: int = _ADDRESS_HEADER.unpack_from(payload)[4]
    return index
