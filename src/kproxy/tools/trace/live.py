"""Reader of a live node's rules, by its own tools; changes nothing.

Every command lists.  Those that would load a kernel module are not run where the kernel shows that there is nothing to
list: legacy iptables without tables, ipset without a rule that matches a set, IPVS without its file in ``/proc``.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from kproxy.linux.host import HostError, read_file, run_tool
from kproxy.linux.netfilter.node_state import TracedNode
from kproxy.linux.netfilter.sources import SourceKind, TraceInputs, TraceSource, merge_sources, source_kind
from kproxy.model.network import Address
from kproxy.tools.trace.query import CannotTrace

NET = "/proc/thread-self/net"
"""Proc files of this thread's network namespace."""

_CAP_NET_ADMIN = 12
"""linux/capability.h."""


def read_live_node(files: Sequence[TraceSource], more_addresses: Sequence[Address]) -> TraceInputs:
    """Rules and state of the node, merged with those of files.  Raises `CannotTrace`, `CannotRead`."""
    if not _may_read_rules():
        raise CannotTrace(
            "a node's rules are read as root: use sudo, or save them as root and give the files with -f: "
            "iptables-save, nft -j list ruleset, ipvsadm -Sn, ipset save"
        )
    problems: list[str] = []
    sources = [*files, *_sources(problems)]
    rules = {SourceKind.IPTABLES, SourceKind.NFTABLES, SourceKind.IPVS, SourceKind.IPVS_PROC}
    if problems and not any(one.kind in rules for one in sources):
        raise CannotTrace("no rules could be read: " + "; ".join(problems))
    known = merge_sources(sources, more_addresses)
    clients = TracedNode(clients=_recent_lists())
    return replace(known, live=True, node=known.node.merged(clients), read=(*known.read, *problems))


def check_interface(name: str) -> None:
    """Check that this network namespace has an interface of this name.  Raises `CannotTrace`."""
    known = [interface for _, interface in socket.if_nameindex()]
    if name not in known:
        raise CannotTrace(f"--via {name}: there is no such interface here; there are {', '.join(known)}")


def _may_read_rules() -> bool:
    """True with CAP_NET_ADMIN (capabilities(7)), as root has it, and kproxy's image without being root."""
    effective = next(
        line for line in read_file("/proc/self/status").splitlines() if line.startswith("CapEff:")
    )
    return bool(int(effective.split()[1], 16) >> _CAP_NET_ADMIN & 1)


def _sources(problems: list[str]) -> Iterator[TraceSource]:
    saves = [one for command in _saves() for one in _printed(command, problems)]
    yield from saves
    yield from _printed(("nft", "-j", "list", "ruleset"), problems)
    if any(b"--match-set" in one.content or b"--map-set" in one.content for one in saves):
        yield from _printed(("ipset", "save"), problems)
    yield from _virtual_servers(problems)
    yield from _printed(("ip", "-j", "address"), problems)
    for family in ("-4", "-6"):
        yield from _printed(("ip", "-j", family, "route", "show", "table", "all"), problems)


def _virtual_servers(problems: list[str]) -> Iterator[TraceSource]:
    """Output of ``ipvsadm``, which uses netlink: kernels (seen: 6.1) omit some in a ``/proc/net/ip_vs`` of several pages."""
    listed = _file(f"{NET}/ip_vs")
    if listed and shutil.which("ipvsadm"):
        yield from _printed(("ipvsadm", "-Sn"), problems)
    elif listed:
        if len(listed) > _WHOLE:
            problems.append(f"{NET}/ip_vs: the kernel may leave virtual servers out of it; install ipvsadm")
        yield TraceSource(f"{NET}/ip_vs", listed.encode(), SourceKind.IPVS_PROC)


_WHOLE = 3500
"""Largest length of ``/proc/net/ip_vs`` that is certainly one page."""


def _saves() -> Iterator[tuple[str, ...]]:
    """Commands for both variants in both families; with the plain name where a distribution has one only."""
    for family in ("ip", "ip6"):
        nft, legacy = f"{family}tables-nft-save", f"{family}tables-legacy-save"
        yield (nft if shutil.which(nft) else f"{family}tables-save",)
        if shutil.which(legacy) and _file(f"{NET}/{family}_tables_names").strip():
            yield (legacy,)


def _printed(command: tuple[str, ...], problems: list[str]) -> list[TraceSource]:
    name = " ".join(command)
    try:
        content = run_tool(command).encode()
    except HostError as error:
        problems.append(f"{name}: {error.detail}: what it would show is not in the answer")
        return []
    kind = source_kind(name, content)
    return [] if kind is SourceKind.EMPTY else [TraceSource(name, content, kind)]


def _file(path: str) -> str:
    try:
        return read_file(path)
    except HostError:
        return ""


def _recent_lists() -> dict[str, frozenset[Address]]:
    """Addresses by list of the ``recent`` match, of any age."""
    folder = Path(NET, "xt_recent")
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return {name: frozenset(_listed(_file(str(folder / name)))) for name in names}


def _listed(text: str) -> Iterator[Address]:
    """Addresses in lines of the format ``src=10.0.0.1 ttl: 64 last_seen: ...``."""
    for line in text.splitlines():
        if line.startswith("src="):
            yield ip_address(line.split()[0].removeprefix("src="))
