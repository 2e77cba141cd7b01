"""Device kube-ipvs0, which makes service addresses local: of kind dummy, down, without ARP (``ipvs.dummy``).

All failures are `kproxy.linux.host.HostError`.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from kproxy.linux.host import HostError, Netlink, Reason, netlink_error
from kproxy.linux.netlink import NetlinkFlag, attribute, nested
from kproxy.model.network import Address, Family, family_of
from kproxy.proxy.backends.ipvs.names import DEVICE

_NEW_LINK, _DELETE_LINK, _NEW_ADDRESS, _DELETE_ADDRESS = 16, 17, 20, 21
_IFLA_NAME, _IFLA_LINKINFO, _INFO_KIND = 3, 18, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_LINK_HEADER = struct.Struct("=BxHiII")
_ADDRESS_HEADER = struct.Struct("=BBBBI")
_NO_DAD, _SCOPE_GLOBAL = 0x02, 0
_DISCARD = ip_address("100::")
"""Of the prefix that is for discarding (RFC 6666): nobody sends to it."""
_AF = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}


def create_device() -> None:
    """Create the device unless it exists."""
    kind = nested(_IFLA_LINKINFO, attribute(_INFO_KIND, b"dummy\0"))
    body = _LINK_HEADER.pack(0, 0, 0, 0, 0) + attribute(_IFLA_NAME, DEVICE.encode() + b"\0") + kind
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        (number,) = netlink.send_all([(_NEW_LINK, NetlinkFlag.CREATE | NetlinkFlag.EXCL, body)])
    if number == errno.EPERM:
        raise netlink_error(f"create device {DEVICE}", number)
    if number not in {0, errno.EEXIST}:
        fix = f"{os.strerror(number)} (a kernel with CONFIG_DUMMY, or modprobe dummy)"
        raise HostError(f"create device {DEVICE}", fix, Reason.UNSUPPORTED)


def delete_device() -> None:
    """Remove the device with all its addresses, if it exists."""
    body = _LINK_HEADER.pack(0, 0, 0, 0, 0) + attribute(_IFLA_NAME, DEVICE.encode() + b"\0")
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        (number,) = netlink.send_all([(_DELETE_LINK, NetlinkFlag(0), body)])
    if number not in {0, errno.ENODEV}:
        raise netlink_error(f"delete device {DEVICE}", number)


def add_addresses(addresses: Sequence[Address]) -> None:
    """Add addresses to the device; existing ones stay.

    A connected socket keeps its route of IPv6 until some address is removed (seen on Linux 7.2; 6.1 keeps it even then).  IPVS leaves that route as it is where the endpoint is the node itself, and the packet leaves the
    node.  So an address that means nothing comes and goes after them.
    """
    _change(_NEW_ADDRESS, NetlinkFlag.CREATE | NetlinkFlag.EXCL, addresses, {0, errno.EEXIST})
    if any(family_of(address) is Family.IPV6 for address in addresses):
        _change(_NEW_ADDRESS, NetlinkFlag.CREATE, [_DISCARD], {0, errno.EEXIST})
        remove_addresses([_DISCARD])


def remove_addresses(addresses: Sequence[Address]) -> None:
    """Remove addresses from the device."""
    _change(_DELETE_ADDRESS, NetlinkFlag(0), addresses, {0, errno.EADDRNOTAVAIL})


def device_exists() -> bool:
    """True if the device exists."""
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        return netlink.interface_index(DEVICE) is not None


def _change(kind: int, flags: NetlinkFlag, addresses: Sequence[Address], ignored_errnos: set[int]) -> None:
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        index = netlink.interface_index(DEVICE)
        if index is None:
            raise HostError(f"change the addresses of {DEVICE}", "the device is gone", Reason.MISSING)
        results = netlink.send_all((kind, flags, body) for body in _bodies(addresses, index))
    for address, number in zip(addresses, results, strict=True):
        if number not in ignored_errnos:
            raise netlink_error(f"change address {address} of {DEVICE}", number)


def _bodies(addresses: Sequence[Address], index: int) -> Iterator[bytes]:
    for address in addresses:
        header = _ADDRESS_HEADER.pack(
            _AF[family_of(address)], address.max_prefixlen, _NO_DAD, _SCOPE_GLOBAL, index
        )
        yield header + attribute(_IFA_LOCAL, address.packed) + attribute(_IFA_ADDRESS, address.packed)
