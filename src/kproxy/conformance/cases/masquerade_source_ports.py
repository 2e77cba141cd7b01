"""Cases of the topic masquerade: source ports that are chosen and redrawn.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    SAME_ENDPOINT,
    Apply,
    Case,
    Feature,
    Open,
    Probe,
    Send,
    Type,
    Vip,
    case,
    client,
    remote,
    service,
)
from kproxy.conformance.cases.common import ANYWHERE, DATAGRAMS, FROM_B1, NODE_PORT_CLAUSES, UDP_PORT

WEB = service("web", "b1", type=Type.NODE_PORT)
DNS = service("dns", "b1", type=Type.LOAD_BALANCER, ports=UDP_PORT, vips=(Vip(),))
APART = "masquerade.same-source-ports.kept-apart"

CLIENTS_WITH_ONE_SOURCE_PORT = case(
    "masquerade.clients-with-one-source-port",
    "Two clients outside that use one source port reach one endpoint through one node, and neither disturbs the other.",
    Apply(WEB, DNS),
    Open(
        flow="tcp-near",
        sender=client("a"),
        to=WEB.node_port("a"),
        expect=FROM_B1,
        from_port_of=WEB.node_port("a"),
    ),
    Open(
        flow="tcp-far",
        sender=remote("a"),
        to=WEB.node_port("a"),
        expect=FROM_B1,
        from_port_of=WEB.node_port("a"),
    ),
    Open(
        flow="udp-near",
        sender=client("a"),
        to=DNS.node_port("a"),
        expect=FROM_B1,
        from_port_of=DNS.node_port("a"),
    ),
    Open(
        flow="udp-far",
        sender=remote("a"),
        to=DNS.node_port("a"),
        expect=FROM_B1,
        from_port_of=DNS.node_port("a"),
    ),
    Send(flow="tcp-near", expect=SAME_ENDPOINT, clauses=(APART,)),
    Send(flow="tcp-far", expect=SAME_ENDPOINT, clauses=(APART,)),
    Send(flow="udp-near", expect=SAME_ENDPOINT, clauses=(APART,)),
    Send(flow="udp-far", expect=SAME_ENDPOINT, clauses=(APART,)),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | DATAGRAMS | {APART},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R017"},
)

SOURCE_PORTS_ARE_REDRAWN = case(
    "masquerade.source-ports-are-redrawn",
    "Endpoints see other source ports than the clients' own in connections that are rewritten.",
    Apply(WEB, DNS),
    Probe(
        sender=client("a"),
        to=WEB.node_port("a"),
        expect=FROM_B1,
        count=6,
        source_port_changed=True,
        clauses=("masquerade.source-ports.redrawn",),
    ),
    Probe(
        sender=remote("a"),
        to=DNS.node_port("a"),
        expect=FROM_B1,
        count=6,
        source_port_changed=True,
        clauses=("masquerade.source-ports.redrawn",),
    ),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | DATAGRAMS | {"masquerade.source-ports.redrawn"},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R017"},
)

CASES: tuple[Case, ...] = (
    CLIENTS_WITH_ONE_SOURCE_PORT,
    SOURCE_PORTS_ARE_REDRAWN,
)
