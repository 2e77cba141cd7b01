"""Value types of the network: families, protocols, addresses, packets.

The lowest layer: every package imports it, it imports nothing of kproxy. It may open nothing, log nothing and
read no clock.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Family(enum.Enum):
    """An IP family; the value is the Kubernetes name of it (Service ``spec.ipFamilies``)."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"

    @property
    def bits(self) -> int:
        """Length of an address in bits."""
        return 32 if self is Family.IPV4 else 128


class Protocol(enum.Enum):
    """A transport protocol; the value is the Kubernetes name of it (ServicePort ``protocol``)."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"

    __hash__ = object.__hash__
    """Hash by identity: members are singletons, and this is faster than Enum's hash in the many dictionaries keyed by protocol.
    """


def family_of(value: Address | Network) -> Family:
    """Family of an address or a network."""
    return Family.IPV4 if value.version == 4 else Family.IPV6


def format_address(value: Address | Network) -> str:
    """``str(value)``, but five times as fast for an IPv4 address: a cluster has a lot of them."""
    if type(value) is not IPv4Address:
        return str(value)
    number = int(value)
    return "%d.%d.%d.%d" % (number >> 24, number >> 16 & 255, number >> 8 & 255, number & 255)  # noqa: UP031 - twice as fast


def format_socket(address: Address, port: int) -> str:
    """An address and a port, as URLs write them: ``10.0.0.1:80``, ``[fd00::1]:80``."""
    text = format_address(address)
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"


_OCTETS = {str(number): number for number in range(256)}


def parse_address(text: str) -> Address | None:
    """An address from Kubernetes text, or None when it is not one.

    IPv4 octets with leading zeros are read as decimal, as the API server's sloppy parser
    does (behaviour ``ds.sloppy-ip``): ``010.0.0.1`` is ``10.0.0.1``.  IPv4-mapped IPv6
    text is the IPv4 address it maps.
    """
    try:  # plain IPv4 first: three times as fast as `ip_address`, and a cluster has a lot of them
        first, second, third, last = text.split(".")
        return IPv4Address(_OCTETS[first] << 24 | _OCTETS[second] << 16 | _OCTETS[third] << 8 | _OCTETS[last])
    except (ValueError, KeyError):
        return _parse_other(text)


@lru_cache(maxsize=1024)  # oracles and simulators read the same few again and again
def _parse_other(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return _parse_sloppy_ipv4(text)
    if isinstance(address, IPv6Address):
        return None if "%" in text else address.ipv4_mapped or address
    return address


def _parse_sloppy_ipv4(text: str) -> Address | None:
    octets = text.split(".")
    if len(octets) != 4 or not all(o.isascii() and o.isdigit() and len(o) <= 8 for o in octets):
        return None
    try:
        return IPv4Address(".".join(str(int(octet)) for octet in octets))
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def parse_network(text: str) -> Network | None:
    """A CIDR from Kubernetes text (blanks around it are allowed, host bits are cleared), or None."""
    address, slash, prefix = text.strip().partition("/")
    parsed = parse_address(address)
    if parsed is None or not slash or not prefix.isascii() or not prefix.isdigit():
        return None
    try:
        return ip_network(f"{parsed}/{prefix}", strict=False)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Packet:
    """First packet of a connection (or a datagram), as its sender emits it.

    ``entry``: where it enters the node that judges it; see `Entry`. ``source`` is the sender's address,
    ``source_port`` only matters where a case fixes it.
    """

    entry: Entry
    source: Address
    destination: Address
    protocol: Protocol
    port: int
    source_port: int = 0

    @property
    def family(self) -> Family:
        """The family of both addresses."""
        return family_of(self.destination)


@dataclass(frozen=True, slots=True)
class Entry:
    """Interface by which a packet enters the node under test.

    ``interface`` is its name, None for a packet that a process in the node's own network namespace sent.
    """

    interface: str | None

    @property
    def from_host(self) -> bool:
        """True if the node itself is the sender."""
        return self.interface is None
