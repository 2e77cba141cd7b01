"""Cases of the topic protocol where several features act together, and at extremes.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    Apply,
    Case,
    Feature,
    Port,
    Probe,
    case,
    client,
    delivered_to,
    pod,
)
from kproxy.conformance.cases.combinations import OPEN, REWRITTEN, UDP_SERVED
from kproxy.conformance.cases.common import FROM_BOTH, POD_CLAUSES
from kproxy.model.network import Protocol

EXTREME = OPEN.replace(
    name="extreme",
    ports=(
        Port(name="a", number=1),
        Port(name="b", number=65535),
        Port(name="c", number=65535, protocol=Protocol.UDP),
    ),
)

FIRST_AND_LAST_PORTS = case(
    "protocols.first-and-last-port-numbers",
    "Ports 1 and 65535 are served like others.",
    Apply(EXTREME),
    *(
        Probe(sender=pod("a2"), to=EXTREME.cluster_ip.at(port), expect=delivered_to("a1", "b1"))
        for port in "abc"
    ),
    *(Probe(sender=client("a"), to=EXTREME.vip().at(port), expect=FROM_BOTH) for port in "abc"),
    *(Probe(sender=client("a"), to=EXTREME.external_ip().at(port), expect=FROM_BOTH) for port in "abc"),
    clauses=POD_CLAUSES
    | REWRITTEN
    | {
        "load-balancer.reaches-ready-endpoint",
        "external-ip.reaches-ready-endpoint",
        UDP_SERVED,
        "protocol.same-number.independent",
    },
    features={Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS},
)

CASES: tuple[Case, ...] = (FIRST_AND_LAST_PORTS,)
