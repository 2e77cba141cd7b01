"""Which rules decide about a probe that failed: what `kproxy trace` says of the node that judged it.

The rules are read as on a live node, in the node's namespace, before the question is asked again.
"""

from __future__ import annotations

from kproxy.conformance.bind import Instance
from kproxy.conformance.case import Probe
from kproxy.lab.lab import Lab
from kproxy.trace import live, show
from kproxy.trace.answer import trace_packet
from kproxy.trace.question import CannotTrace, ResolvedQuery
from kproxy.trace.readers.errors import CannotRead
from kproxy.trace.state import TracedPacket


def deciding_rules(lab: Lab, instance: Instance, probe: Probe) -> bytes:
    """The clauses that were broken, and the way of the probe's packet through the rules of the node, for people."""
    question = instance.question(probe.sender, probe.to)
    head = f"node {question.judge}\nclauses: {', '.join(probe.clauses)}\n\n"
    asked = question.packet
    packet = TracedPacket(
        asked.source, asked.destination, asked.protocol.value.lower(), asked.port, asked.entry.interface or ""
    )
    try:
        with lab.network[question.judge].entered():
            known = live.read_live_node((), ())
        found = trace_packet(known.node, packet)
    except (CannotTrace, CannotRead) as reason:
        return f"{head}not known: {reason}\n".encode()
    told = ResolvedQuery(packet, str(probe.sender), str(probe.to), ())
    return (head + show.trace_text(found, told, known.read)).encode()
