"""Virtual servers, as ``ipvsadm -Sn`` prints them, or the kernel in ``/proc/net/ip_vs``.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address

from kproxy.linux.netfilter.node_state import IpvsRealServer, IpvsVirtualServer, VirtualKey
from kproxy.linux.netfilter.readers.errors import CannotRead
from kproxy.linux.netfilter.readers.numbers import parse_socket
from kproxy.model.network import Address

Virtuals = dict[VirtualKey, IpvsVirtualServer]

_PROTOCOLS = {"-t": "tcp", "-u": "udp", "--sctp-service": "sctp"}
_METHODS = {"-m": "masquerading", "-g": "routing", "-i": "tunneling"}
_PERSISTENT = 300
"""Seconds, where ``-p`` has no number (man 8 ipvsadm)."""


def read_ipvsadm(text: str) -> Virtuals:
    """All virtual servers with their servers.  Raises `CannotRead`."""
    found: Virtuals = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0] not in {"-A", "-a"}:
            continue
        try:
            key = _key(fields)
            if fields[0] == "-A":
                found[key] = IpvsVirtualServer(_after(fields, "-s") or "wlc", _persistence(fields), ())
            else:
                _add(found, key, _server(fields))
        except (ValueError, IndexError, KeyError) as error:
            raise CannotRead(f"line {number}: {line.strip()}: no line of `ipvsadm -Sn`") from error
    return found


def _add(found: Virtuals, key: VirtualKey, server: IpvsRealServer) -> None:
    found[key] = replace(found[key], servers=(*found[key].servers, server))


def _after(fields: list[str], option: str) -> str:
    return fields[fields.index(option) + 1] if option in fields[:-1] else ""


def _persistence(fields: list[str]) -> str | None:
    if "-p" not in fields:
        return None
    seconds = _after(fields, "-p")
    return f"{seconds if seconds.isdigit() else _PERSISTENT} s"


def _key(fields: list[str]) -> VirtualKey:
    if fields[1] in {"-f", "--fwmark-service"}:
        return int(fields[2])
    address, port = _socket(fields[2])
    return address, _PROTOCOLS[fields[1]], port


def _server(fields: list[str]) -> IpvsRealServer:
    address, port = _socket(_after(fields, "-r"))
    method = next((name for word, name in _METHODS.items() if word in fields), "routing")
    return IpvsRealServer(address, port, int(_after(fields, "-w") or 1), method)


def _socket(text: str) -> tuple[Address, int]:
    found = parse_socket(text)
    if found is None or not isinstance(found[0], IPv4Address | IPv6Address):
        raise ValueError(text)
    return found[0], found[1] if isinstance(found[1], int) else 0


# ---------------------------------------------------------------------- /proc/net/ip_vs

_FORWARDING = {"Masq": "masquerading", "Route": "routing", "Tunnel": "tunneling"}


def read_proc_ip_vs(text: str) -> Virtuals:
    """Virtual servers as the kernel prints them: addresses and ports are hexadecimal, so are marks.  Raises `CannotRead`."""
    found: Virtuals = {}
    key: VirtualKey | None = None
    for line in text.splitlines():
        fields = line.split()
        match fields:
            case ["->", where, method, weight, *_] if key is not None:
                address, port = _hexadecimal(where)
                _add(
                    found,
                    key,
                    IpvsRealServer(address, port, int(weight), _FORWARDING.get(method, method.lower())),
                )
            case ["TCP" | "UDP" | "SCTP" as protocol, where, scheduler, *flags]:
                key = (*_placed(where, protocol.lower()),)
                found[key] = IpvsVirtualServer(scheduler, _flagged(flags), ())
            case ["FWM", mark, scheduler, *flags]:
                key = int(mark, 16)
                found[key] = IpvsVirtualServer(scheduler, _flagged(flags), ())
            case _:
                pass
    return found


def _placed(where: str, protocol: str) -> tuple[Address, str, int]:
    address, port = _hexadecimal(where)
    return address, protocol, port


def _flagged(flags: Iterable[str]) -> str | None:
    """Here the time is in jiffies, and what one is only the kernel's configuration says (ip_vs_info_seq_show)."""
    fields = list(flags)
    return f"{fields[fields.index('persistent') + 1]} jiffies" if "persistent" in fields else None


def _hexadecimal(text: str) -> tuple[Address, int]:
    try:
        if text.startswith("["):
            address, _, port = text[1:].rpartition("]:")
            return ip_address(address), int(port, 16)
        number, _, port = text.partition(":")
        return IPv4Address(int(number, 16)), int(port, 16)
    except ValueError as error:
        raise CannotRead(f"{text}: no address of /proc/net/ip_vs") from error
