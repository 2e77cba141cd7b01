"""``kproxy trace``: files or the live node in, a result out; `kproxy.cli` parses its arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kproxy.documents import TEXT, print_document
from kproxy.linux.netfilter.node_state import TracedNode
from kproxy.linux.netfilter.packet_state import TracedPacket
from kproxy.linux.netfilter.readers.errors import CannotRead
from kproxy.linux.netfilter.sources import SourceKind, TraceInputs, TraceSource, merge_sources, source_kind
from kproxy.model.network import Address, parse_address
from kproxy.tools.explain.dump import CannotExplain, Dump
from kproxy.tools.explain.dump import parse_dump as read_objects
from kproxy.tools.trace import live, relay, service, show
from kproxy.tools.trace.answer import trace_packet
from kproxy.tools.trace.query import CannotTrace, TraceQuery, resolve_query

CANNOT = 2
SHORT = "short"
RULES = frozenset({SourceKind.IPTABLES, SourceKind.NFTABLES, SourceKind.IPVS, SourceKind.IPVS_PROC})


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Arguments of the command line."""

    files: Sequence[str]
    sender: str
    target: str
    via: str
    node_address: Sequence[str]
    form: str


def run_trace(options: TraceOptions) -> int:
    """Print what a node's rules do to a packet; returns 0, or 2 if arguments or rules cannot be read."""
    try:
        known = _known(options)
        if known.live and options.via:
            live.check_interface(options.via)
        dump = read_objects(known.objects) if known.objects else None
        question = resolve_query(TraceQuery(options.sender, options.target, options.via), known.node, dump)
        found = trace_packet(known.node, question.packet)  # rules are read when the packet comes to them
        if known.live:
            found, silent = relay.find_relay_sockets(found)
            known = replace(known, read=(*known.read, *silent))
    except (CannotTrace, CannotRead, CannotExplain) as reason:
        sys.stderr.write(f"kproxy trace: {reason}\n")
        return CANNOT
    names = _names(dump, known.node, question.packet) if dump is not None else None
    if options.form in {TEXT, SHORT}:
        sys.stdout.write(show.trace_text(found, question, known.read, names, rules=options.form == TEXT))
    else:
        print_document(show.trace_document(found, question, known.read, names), options.form)
    return 0


def _names(dump: Dump, node: TracedNode, packet: TracedPacket) -> show.ObjectNames:
    """Names of the packet's addresses, from the cluster's objects."""

    def owner(address: Address) -> str:
        pod = dump.pod_at(address)
        return "" if pod is None else str(pod)

    local = bool(node.is_local(packet.destination))
    return show.ObjectNames(owner, service.services_at(dump.cluster, packet, local=local))


def _known(options: TraceOptions) -> TraceInputs:
    """Rules and state from the files; from the live node if no file has rules."""
    files = [_file(name) for name in options.files]
    addresses = [_address(text) for text in options.node_address]
    if any(one.kind in RULES for one in files):
        return merge_sources(files, addresses)
    if files and all(one.kind is SourceKind.EMPTY for one in files):
        raise CannotTrace("the files are empty: there are no rules to trace")
    return live.read_live_node(files, addresses)


def _file(name: str) -> TraceSource:
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CannotTrace(f"-f {name}: {error.strerror}") from error
    return TraceSource(name, content, source_kind(f"-f {name}", content))


def _address(text: str) -> Address:
    address = parse_address(text)
    if address is None:
        raise CannotTrace(f"--node-address {text}: that is no address")
    return address
