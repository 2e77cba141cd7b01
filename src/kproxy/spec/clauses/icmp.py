"""Clauses of the topic icmp: packets larger than a link takes, ICMP errors about served flows, and pings."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import E2E, OBSERVED, may, must, should

HISTORY = (
    must(
        "payload.large.passes",
        "Requests and answers larger than a packet pass, UDP fragments included.",
        E2E,
        links.E2E_NETWORKING,
        of="cip.large-payload",
    ),
    should(
        "icmp.errors.translated-back",
        "An ICMP error about a connection through a Service reaches whom it concerns, client or endpoint, as one "
        "about the address that it knows.",
        OBSERVED,
        "https://github.com/projectcalico/calico/issues/8854",
        of="cip.related-icmp",
    ),
    may(
        "icmp.ping.refused-or-routed",
        "A ping to an address of a Service may be refused or left to routing; the node itself does not answer it.",
        OBSERVED,
        links.NFTABLES_KEP,
        links.kubernetes_issue(22952),
        of="cip.icmp-echo eip.no-arp",
    ),
)
"""Clauses that only several connections, a flow, a change or time can show; the oracle names none of these."""
