"""Rules that decide about a failed probe: `kproxy trace` on the node that judges it.

The rules are read as on a live node, in the node's namespace, before the check is repeated.
"""

from __future__ import annotations

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import Probe
from kproxy.lab.lab import Lab
from kproxy.linux.netfilter.packet_state import TracedPacket
from kproxy.linux.netfilter.readers.errors import CannotRead
from kproxy.tools.trace import live, show
from kproxy.tools.trace.answer import trace_packet
from kproxy.tools.trace.query import CannotTrace, ResolvedQuery


def deciding_rules(lab: Lab, instance: Instance, probe: Probe) -> bytes:
    """Broken clauses, and the path of the probe's packet through the rules of the node, as text."""
    question = instance.bound_packet(probe.sender, probe.to)
    head = f"node {question.node}\nclauses: {', '.join(probe.clauses)}\n\n"
    packet_sent = question.packet
    packet = TracedPacket(
        packet_sent.source,
        packet_sent.destination,
        packet_sent.protocol.value.lower(),
        packet_sent.port,
        packet_sent.entry.interface or "",
    )
    try:
        with lab.network[question.node].entered():
            known = live.read_live_node((), ())
        found = trace_packet(known.node, packet)
    except (CannotTrace, CannotRead) as reason:
        return f"{head}not known: {reason}\n".encode()
    query = ResolvedQuery(packet, str(probe.sender), str(probe.to), ())
    return (head + show.trace_text(found, query, known.read)).encode()
