"""``ip -j address`` and ``ip -j route show table all``: what is local, and by which interface a packet leaves.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kproxy.linux.netfilter.node_state import Route, any_network
from kproxy.linux.netfilter.readers.numbers import read_network
from kproxy.model.network import Address, Family, Network, parse_address, parse_network

Json = Any


def read_ip_addresses(links: list[Json]) -> frozenset[Address]:
    """All addresses of all interfaces."""
    texts = (entry.get("local", "") for link in links for entry in link.get("addr_info", ()))
    return frozenset(address for text in texts if (address := parse_address(text)) is not None)


def read_ip_routes(entries: list[Json]) -> Iterator[Route]:
    """All routes; several next hops count as the first of them."""
    six = any(":" in str(entry.get(name, "")) for entry in entries for name in ("dst", "gateway"))
    for entry in entries:
        destination = _destination(str(entry.get("dst", "")), six=six and not _four(entry))
        if destination is None:
            continue
        hops = entry.get("nexthops") or [{}]
        yield Route(
            destination,
            str(entry.get("dev") or hops[0].get("dev", "")),
            str(entry.get("type", "unicast")),
            parse_address(str(entry.get("prefsrc", ""))),
            int(entry.get("metric", 0)),
            str(entry.get("table", "main")),
        )


def _four(entry: Json) -> bool:
    """True if a default route is of IPv4."""
    return any(
        "." in str(entry.get(name, "")) and ":" not in str(entry.get(name, ""))
        for name in ("gateway", "prefsrc")
    )


def _destination(text: str, *, six: bool) -> Network | None:
    if text == "default":
        return any_network(Family.IPV6 if six else Family.IPV4)
    found = read_network(text)
    if found is None:
        return None
    return parse_network(f"{found}/{found.max_prefixlen}") if isinstance(found, Address) else found
