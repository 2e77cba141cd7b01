"""Explanation as text and as JSON. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from kproxy.model.network import format_socket
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.outcome import ClauseId, Delivered, Failure, Outcome, SourceIP
from kproxy.tools.explain.dump import Dump
from kproxy.tools.explain.explanation import Explanation, Hop

WIDTH = 110

FAILURES = {
    Failure.REJECTED: "rejected: the sender gets ICMP port unreachable",
    Failure.DROPPED: "dropped: silence",
    Failure.UNTOUCHED: "untouched: the proxy leaves it to routing, or to the node's own sockets",
    Failure.RESET: "reset: a TCP RST",
}


def format_explanation(answer: Explanation, dump: Dump) -> str:
    """Text of an explanation."""
    lines = [_question(answer)]
    for hop in answer.hops:
        several = ", any of" if len(hop.expectation.outcomes) > 1 else ""
        lines += ["", f"at node {hop.node}, lawful{several}:"]
        lines += [f"  {line}" for line in sorted(_outcome(o, hop, dump) for o in hop.expectation.outcomes)]
        lines.append("because:")
        for id in hop.expectation.clauses:
            lines += _clause(id)
    if answer.assumptions:
        lines += ["", "assumed:", *(f"  {line}" for line in answer.assumptions)]
    return "\n".join(lines) + "\n"


def _question(answer: Explanation) -> str:
    packet = answer.hops[0].packet
    at = f" on {answer.sender.node}" if answer.sender.node and not answer.sender.host else ""
    to = f" ({answer.target.label})" if answer.target.label else ""
    endpoint = format_socket(packet.destination, packet.port)
    return f"{packet.protocol.value} {packet.source} ({answer.sender.label}{at}) -> {endpoint}{to}"


def _outcome(outcome: Outcome, hop: Hop, dump: Dump) -> str:
    if isinstance(outcome, Failure):
        return FAILURES[outcome]
    sees = str(hop.packet.source) if outcome.source is SourceIP.PRESERVED else f"an address of {hop.node}"
    where = _where(outcome, dump)
    return f"delivered to {format_socket(outcome.address, outcome.port)}{where}, which sees {sees}"


def _where(outcome: Delivered, dump: Dump) -> str:
    pod = dump.pod_at(outcome.address)
    if pod is None:
        return ""
    return f" ({pod}{f' on {pod.node}' if pod.node else ''})"


def _clause(id: ClauseId) -> Iterator[str]:
    clause = CLAUSES[id]
    yield f"  {clause.level.value:<6} {id}"
    yield from textwrap.wrap(clause.text, WIDTH, initial_indent=" " * 9, subsequent_indent=" " * 9)
    yield f"         {clause.authority.value}:"
    yield from (f"           {link}" for link in clause.source)


def explanation_document(answer: Explanation, dump: Dump) -> dict[str, Any]:
    """Explanation as JSON."""
    first = answer.hops[0].packet
    return {
        "schema": "kproxy-explanation/2",
        "packet": {
            "from": answer.sender.label,
            "source": str(first.source),
            "to": answer.target.label,
            "destination": str(first.destination),
            "port": first.port,
            "protocol": first.protocol.value,
        },
        "hops": [_hop(hop, dump) for hop in answer.hops],
        "assumptions": list(answer.assumptions),
    }


def _hop(hop: Hop, dump: Dump) -> dict[str, Any]:
    return {
        "node": hop.node,
        "outcomes": sorted((_lawful_outcome(o, dump) for o in hop.expectation.outcomes), key=str),
        "clauses": [
            {
                "id": id,
                "level": CLAUSES[id].level.value,
                "sentence": CLAUSES[id].text,
                "authority": CLAUSES[id].authority.value,
                "sources": list(CLAUSES[id].source),
            }
            for id in hop.expectation.clauses
        ],
    }


def _lawful_outcome(outcome: Outcome, dump: Dump) -> dict[str, Any]:
    if isinstance(outcome, Failure):
        return {"outcome": outcome.value}
    found = {
        "outcome": "delivered",
        "address": str(outcome.address),
        "port": outcome.port,
        "source": outcome.source.value,
    }
    pod = dump.pod_at(outcome.address)
    return {**found, "pod": f"{pod.namespace}/{pod.name}"} if pod else found
