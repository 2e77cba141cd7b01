"""Device kube-ipvs0, which makes service addresses local: of kind dummy, down, without ARP (``ipvs.dummy``).

All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from kproxy.linux.host import HostError, Reason
from kproxy.linux.netlink import NetlinkFlag, attribute, attributes, nested
from kproxy.linux.netlink_socket import Netlink, NetlinkError
from kproxy.model.network import Address, Family, family_of
from kproxy.proxy.backends.ipvs.names import DEVICE

_NEW_LINK, _DELETE_LINK, _NEW_ADDRESS, _DELETE_ADDRESS = 16, 17, 20, 21
_IFLA_NAME, _IFLA_LINKINFO, _INFO_KIND = 3, 18, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_LINK_HEADER = struct.Struct("=BxHiII")
_ADDRESS_HEADER = struct.Struct("=BBBBI")
_NO_DAD, _SCOPE_GLOBAL = 0x02, 0
_NEW_ROUTE, _DELETE_ROUTE, _GET_ROUTE = 24, 25, 26
_ROUTE_HEADER = struct.Struct("=BBBBBBBBI")
_NUMBER = struct.Struct("=I")
_RTA_DESTINATION, _RTA_INTERFACE, _RTA_PRIORITY, _RTA_PREFERRED_SOURCE = 1, 4, 6, 7
_LOCAL_TABLE, _SCOPE_HOST, _TYPE_LOCAL = 255, 254, 2
_ROUTE_PROTOCOL, _METRIC = 75, 1024
"""Mark of our routes, and their rank behind the kernel's own."""
_LOOPBACK_INDEX = 1
_DISCARD = ip_address("100::")
"""Of the prefix that is for discarding (RFC 6666): nobody sends to it."""
_LAST_ROUTES = 64
"""Routes that are looked at when addresses were added: at a start there may be ten thousand."""
_AF = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}


def create_device() -> None:
    """Create the device unless it exists."""
    kind = nested(_IFLA_LINKINFO, attribute(_INFO_KIND, b"dummy\0"))
    body = _LINK_HEADER.pack(0, 0, 0, 0, 0) + attribute(_IFLA_NAME, DEVICE.encode() + b"\0") + kind
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        (number,) = netlink.send_all([(_NEW_LINK, NetlinkFlag.CREATE | NetlinkFlag.EXCL, body)])
    if number == errno.EPERM:
        raise NetlinkError(f"create device {DEVICE}", number)
    if number not in {0, errno.EEXIST}:
        fix = f"{os.strerror(number)} (a kernel with CONFIG_DUMMY, or modprobe dummy)"
        raise HostError(f"create device {DEVICE}", fix, Reason.UNSUPPORTED)


def delete_device() -> None:
    """Remove the device with all its addresses, if it exists."""
    body = _LINK_HEADER.pack(0, 0, 0, 0, 0) + attribute(_IFLA_NAME, DEVICE.encode() + b"\0")
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        (number,) = netlink.send_all([(_DELETE_LINK, NetlinkFlag(0), body)])
    if number not in {0, errno.ENODEV}:
        raise NetlinkError(f"delete device {DEVICE}", number)


def add_addresses(addresses: Sequence[Address]) -> None:
    """Add addresses to the device; existing ones stay.

    A connected socket keeps its route of IPv6 until some address is removed.  IPVS leaves that route as it is where the endpoint is the
    node itself, and the packet leaves the node.  So an address that means nothing comes and goes after them, when
    packets to them take the new way.
    """
    _change(_NEW_ADDRESS, NetlinkFlag.CREATE | NetlinkFlag.EXCL, addresses, {0, errno.EEXIST})
    if addresses and family_of(addresses[0]) is Family.IPV6:
        _await_routes(addresses)
        _change(_NEW_ADDRESS, NetlinkFlag.CREATE, [_DISCARD], {0, errno.EEXIST})
        remove_addresses([_DISCARD])


def remove_addresses(addresses: Sequence[Address]) -> None:
    """Remove addresses from the device."""
    _change(_DELETE_ADDRESS, NetlinkFlag(0), addresses, {0, errno.EADDRNOTAVAIL})


def route_addresses(addresses: Sequence[Address], source: Address | None) -> None:
    """Make addresses local without the device, for connections that are there; the node's new ones come from ``source``.

    The same as ``ip route add local ADDRESS dev lo table local proto 75 metric 1024 src SOURCE``.  Routes of addresses on the device come first.
    """
    _change_routes(_NEW_ROUTE, NetlinkFlag.CREATE | NetlinkFlag.EXCL, addresses, source)


def remove_routes(addresses: Sequence[Address]) -> None:
    """Remove routes of `route_addresses`."""
    _change_routes(_DELETE_ROUTE, NetlinkFlag(0), addresses, None)


def routed_addresses(family: Family) -> frozenset[Address]:
    """Addresses with a route of `route_addresses`."""
    found = set()
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        for payload in netlink.dump(_GET_ROUTE, _ROUTE_HEADER.pack(_AF[family], 0, 0, 0, 0, 0, 0, 0, 0)):
            _, _, _, _, table, protocol, _, kind, _ = _ROUTE_HEADER.unpack_from(payload)
            if (table, protocol, kind) == (_LOCAL_TABLE, _ROUTE_PROTOCOL, _TYPE_LOCAL):
                raw = bytes(attributes(payload[_ROUTE_HEADER.size :])[_RTA_DESTINATION])
                found.add(ip_address(raw))
    return frozenset(found)


def device_exists() -> bool:
    """True if the device exists."""
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        return netlink.interface_index(DEVICE) is not None


def _await_routes(addresses: Sequence[Address]) -> None:
    """Wait, a second at most, until addresses of IPv6 are local: Linux makes their routes some time after it acknowledges them.

    One work queue makes them in turn, so the last ones stand for all.
    """
    deadline = time.monotonic() + 1
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        for address in addresses[-_LAST_ROUTES:]:
            while not _is_local(netlink, address) and time.monotonic() < deadline:
                time.sleep(0.001)


def _is_local(netlink: Netlink, address: Address) -> bool:
    """True if there is a route to an address of IPv6, and it ends here."""
    request = _ROUTE_HEADER.pack(socket.AF_INET6, address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    body = request + attribute(_RTA_DESTINATION, address.packed)
    try:
        route = netlink.get(_GET_ROUTE, body)
    except HostError:
        return False
    return bool(_ROUTE_HEADER.unpack_from(route)[7] == _TYPE_LOCAL)


def _change(kind: int, flags: NetlinkFlag, addresses: Sequence[Address], ignored_errnos: set[int]) -> None:
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        index = netlink.interface_index(DEVICE)
        if index is None:
            raise HostError(f"change the addresses of {DEVICE}", "the device is gone", Reason.MISSING)
        results = netlink.send_all((kind, flags, body) for body in _bodies(addresses, index))
    for address, number in zip(addresses, results, strict=True):
        if number not in ignored_errnos:
            raise NetlinkError(f"change address {address} of {DEVICE}", number)


def _change_routes(
    kind: int, flags: NetlinkFlag, addresses: Sequence[Address], source: Address | None
) -> None:
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        results = netlink.send_all((kind, flags, _route(address, source)) for address in addresses)
    for address, number in zip(addresses, results, strict=True):
        if number not in {0, errno.EEXIST, errno.ESRCH}:
            raise NetlinkError(f"change the local route of {address}", number)


def _route(address: Address, source: Address | None) -> bytes:
    family = _AF[family_of(address)]
    kind = _LOCAL_TABLE, _ROUTE_PROTOCOL, _SCOPE_HOST, _TYPE_LOCAL
    parts = [
        _ROUTE_HEADER.pack(family, address.max_prefixlen, 0, 0, *kind, 0),
        attribute(_RTA_DESTINATION, address.packed),
        attribute(_RTA_INTERFACE, _NUMBER.pack(_LOOPBACK_INDEX)),
        attribute(_RTA_PRIORITY, _NUMBER.pack(_METRIC)),
    ]
    return b"".join([*parts, *([attribute(_RTA_PREFERRED_SOURCE, source.packed)] if source else [])])


def _bodies(addresses: Sequence[Address], index: int) -> Iterator[bytes]:
    for address in addresses:
        header = _ADDRESS_HEADER.pack(
            _AF[family_of(address)], address.max_prefixlen, _NO_DAD, _SCOPE_GLOBAL, index
        )
        yield header + attribute(_IFA_LOCAL, address.packed) + attribute(_IFA_ADDRESS, address.packed)
