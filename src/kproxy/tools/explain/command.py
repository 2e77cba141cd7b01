"""``kproxy spec explain``: files in, an explanation out; `kproxy.cli` parses its options."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kproxy.documents import TEXT, print_document
from kproxy.model.network import Address, parse_address
from kproxy.spec.node import PRIMARY
from kproxy.tools.explain import show
from kproxy.tools.explain.dump import KUBECTL, CannotExplain, Dump, of_option, parse_dump
from kproxy.tools.explain.endpoints import parse_sender, parse_target
from kproxy.tools.explain.explanation import ProxySettings, explain_packet, parse_networks

EXIT_CANNOT_EXPLAIN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """Options of the command line."""

    files: Sequence[str]
    sender: str
    target: str
    node: str
    form: str
    mode: str
    cluster_cidr: str
    node_port_addresses: str
    node_address: Sequence[str]
    masquerade_all: bool


def explain(question: ExplainOptions) -> int:
    """Print the lawful outcomes; 0, or 2 when the arguments cannot be resolved."""
    try:
        dump = read_dump(question.files)
        settings = _settings(question)
        with of_option("--from", question.sender):
            sender = parse_sender(question.sender, dump, question.node)
        with of_option("--to", question.target):
            target = parse_target(question.target, dump)
        with of_option("--node", question.node):
            found = explain_packet(dump, sender, target, settings, question.node)
    except CannotExplain as reason:
        sys.stderr.write(f"kproxy spec explain: {reason}\n")
        return EXIT_CANNOT_EXPLAIN
    for rejected in dump.cluster.rejected:
        name = "/".join(filter(None, rejected.key)) or "without a name"
        sys.stderr.write(f"kproxy spec explain: {rejected.kind} {name} is left out: {rejected.reason}\n")
    if question.form == TEXT:
        sys.stdout.write(show.format_explanation(found, dump))
    else:
        print_document(show.explanation_document(found, dump), question.form)
    return 0


def read_dump(files: Sequence[str]) -> Dump:
    """The dump in some files, ``-`` for standard input.  Raises `CannotExplain`."""
    return parse_dump(_texts(files))


def _texts(files: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for name in files:
        try:
            yield name, sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        except OSError as error:
            raise CannotExplain(f"-f {name}: {error.strerror}; `{KUBECTL}` prints what is needed") from error


def _settings(question: ExplainOptions) -> ProxySettings:
    ranges = question.node_port_addresses
    primary = ranges == "primary"
    return ProxySettings(
        mode=question.mode,
        cluster_cidrs=parse_networks(question.cluster_cidr, "--cluster-cidr"),
        masquerade_all=question.masquerade_all,
        node_port_addresses=PRIMARY if primary else parse_networks(ranges, "--node-port-addresses"),
        extra_addresses=tuple(map(_address, question.node_address)),
    )


def _address(text: str) -> Address:
    address = parse_address(text)
    if address is None:
        raise CannotExplain(f"--node-address {text}: that is no address")
    return address
