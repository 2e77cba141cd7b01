"""Clauses of the topic protocol: TCP, UDP and SCTP, side by side."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, E2E, KEP, OBSERVED, must, should

PACKET = (
    must(
        "protocol.udp.served",
        "UDP is served like TCP, and replies come from the address and port that the client sent to.",
        DOCS,
        links.PROTOCOLS,
        links.E2E_NETWORKING,
        of="cip.udp.dnat",
    ),
    must(
        "protocol.sctp.served",
        "SCTP is served like TCP where the kernel has it.",
        KEP,
        links.SCTP_KEP,
        links.PROTOCOLS,
        of="cip.sctp.dnat np.sctp proto.sctp.nodeport",
        since="1.20",
    ),
    must(
        "protocol.same-number.independent",
        "Ports of different protocols with one number, service port or node port, are served side by side.",
        DOCS,
        links.SERVICE_MIXED_PROTOCOLS,
        links.MIXED_PROTOCOLS_KEP,
        links.E2E_SERVICE,
        of="proto.same-port np.both-protocols lb.mixed-protocol",
    ),
)
"""Clauses that the outcome of one first packet shows."""

HISTORY = (
    should(
        "protocol.sctp.many-addresses.served",
        "An association whose client lists several addresses is served over the address that the client "
        "sent to; its other addresses need not serve as further paths.",
        OBSERVED,
        links.SCTP_KEP,
        links.kubernetes_issue(102128),
        of="proto.sctp.multihoming",
        since="1.20",
    ),
    must(
        "protocol.sctp.without-sockets.served",
        "An SCTP port is served on nodes whose kernel has no SCTP itself, but for netfilter's part of it.",
        E2E,
        links.SCTP_KEP,
        links.E2E_SERVICE,
        of="proto.sctp.module",
        since="1.20",
    ),
)
"""Clauses that only several connections, a flow, a change or time can show; the oracle names none of these."""
