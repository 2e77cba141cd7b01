"""``kproxy trace``: files or the live node in, an answer out; `kproxy.cli` parses words for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kproxy.explain.dump import CannotExplain, Dump
from kproxy.explain.dump import read as read_objects
from kproxy.net import Address, parse_address
from kproxy.trace import live, service, show
from kproxy.trace.answer import answer
from kproxy.trace.node import Node
from kproxy.trace.question import CannotTrace, Question, asked
from kproxy.trace.readers.problem import CannotRead
from kproxy.trace.sources import Kind, Known, Source, kind_of, together
from kproxy.trace.state import Packet

CANNOT = 2
RULES = frozenset({Kind.IPTABLES, Kind.NFTABLES, Kind.IPVS, Kind.IPVS_PROC})


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The words of the command line."""

    files: Sequence[str]
    sender: str
    target: str
    via: str
    node_address: Sequence[str]
    output: str


def trace(words: Words) -> int:
    """Print what a node's rules do to a packet; 0, or 2 when the question cannot be put or rules cannot be read."""
    try:
        known = _known(words)
        dump = read_objects(known.objects) if known.objects else None
        question = asked(Question(words.sender, words.target, words.via), known.node, dump)
        found = answer(known.node, question.packet)  # rules are read when the packet comes to them
    except (CannotTrace, CannotRead, CannotExplain) as reason:
        sys.stderr.write(f"kproxy trace: {reason}\n")
        return CANNOT
    names = _names(dump, known.node, question.packet) if dump is not None else None
    if words.output == "json":
        document = show.document(found, question, known.read, names)
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")
    else:
        sys.stdout.write(show.text(found, question, known.read, names, rules=words.output == "text"))
    return 0


def _names(dump: Dump, node: Node, packet: Packet) -> show.Names:
    """What the objects say of this packet."""

    def owner(address: Address) -> str:
        pod = dump.pod_at(address)
        return "" if pod is None else str(pod)

    local = bool(node.is_local(packet.destination))
    return show.Names(owner, service.of_objects(dump.cluster, packet, local=local))


def _known(words: Words) -> Known:
    """From the files; from the live node where no file holds rules."""
    files = [_file(name) for name in words.files]
    addresses = [_address(text) for text in words.node_address]
    if any(one.kind in RULES for one in files):
        return together(files, addresses)
    if files and all(one.kind is Kind.EMPTY for one in files):
        raise CannotTrace("the files are empty: there are no rules to ask")
    return live.read(files, addresses)


def _file(name: str) -> Source:
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CannotTrace(f"-f {name}: {error.strerror}") from error
    return Source(name, content, kind_of(f"-f {name}", content))


def _address(text: str) -> Address:
    address = parse_address(text)
    if address is None:
        raise CannotTrace(f"--node-address {text}: that is no address")
    return address
