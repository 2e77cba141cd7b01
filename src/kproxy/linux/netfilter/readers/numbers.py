"""Addresses, networks, ports and marks as tools write them.  Pure."""

from __future__ import annotations

from ipaddress import IPv4Network

from kproxy.linux.netfilter.patterns import Pattern, Span
from kproxy.model.network import Address, Network, parse_address, parse_network

PROTOCOLS = {"1": "icmp", "6": "tcp", "17": "udp", "58": "ipv6-icmp", "132": "sctp", "icmpv6": "ipv6-icmp"}
"""Names by number (/etc/protocols), and one that tools write in two ways."""


def normalize_protocol(text: str) -> str:
    """A protocol's name."""
    return PROTOCOLS.get(text.lower(), text.lower())


def parse_number(text: str) -> int:
    """Decimal, or with 0x."""
    return int(text, 0)


def as_host_address(network: Network) -> Address | Network:
    """A network of one address is that address."""
    if network.prefixlen == network.max_prefixlen:
        return network.network_address
    return network


def read_network(text: str) -> Address | Network | None:
    """An address, or a network with its length; None when it is neither."""
    if "/" not in text:
        return parse_address(text)
    found = parse_network(text)
    if found is None:  # 10.0.0.0/255.0.0.0
        try:
            found = IPv4Network(text, strict=False)
        except ValueError:
            return None
    return as_host_address(found)


def parse_ports(text: str) -> Pattern | None:
    """One port or ``first:last``; None for names of services."""
    first, colon, last = text.replace("-", ":").partition(":")
    if not colon:
        return int(text) if text.isdigit() else None
    if not (first or "0").isdigit() or not (last or "65535").isdigit():
        return None
    return Span(int(first or 0), int(last or 65535))


def parse_socket(text: str) -> tuple[Address | Span | None, int | Span | None] | None:
    """``address``, ``address:port``, ``[address]:port``, ``:port``, each a range with ``-``; None when it is none of it."""
    address_text, port_text = _parted(text)
    address = _addresses(address_text)
    port = parse_ports(port_text) if port_text else None
    if (address_text and address is None) or (port_text and not isinstance(port, int | Span)):
        return None
    return address, port if isinstance(port, int | Span) else None


def _parted(text: str) -> tuple[str, str]:
    if text.startswith("["):
        address, _, port = text[1:].partition("]")
        return address, port.removeprefix(":").partition("/")[0]
    if text.count(":") > 1:
        return text, ""
    address, _, port = text.partition(":")
    return address, port.partition("/")[0]


def _addresses(text: str) -> Address | Span | None:
    first_text, dash, last_text = text.partition("-")
    first = parse_address(first_text.strip("[]"))
    if not dash or first is None:
        return first
    last = parse_address(last_text.strip("[]"))
    return None if last is None else first if first == last else Span(first, last)
