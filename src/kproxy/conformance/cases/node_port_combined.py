"""Cases of the topic node-port where several features act together, and at extremes.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    REJECTED,
    UNTOUCHED,
    Apply,
    Case,
    Feature,
    Policy,
    Probe,
    Type,
    case,
    client,
    delivered_to,
    host,
    pod,
    service,
)
from kproxy.conformance.cases.combinations import (
    BOTH_PROTOCOLS,
    EXPOSED,
    EXTERNAL,
    KEPT,
    OPEN,
    REFUSED,
    REWRITTEN,
    UDP_SERVED,
    external_targets,
)
from kproxy.conformance.cases.common import EVERY_KIND, FROM_BOTH, SPREAD, UDP_PORT
from kproxy.conformance.cases.profiles import NO_DETECTOR, NODE_PORT_CIDR
from kproxy.model.network import Family

LOCAL = Policy.LOCAL

LISTED, UNLISTED = (
    "node-port.addresses.inside-configured.served",
    "node-port.addresses.outside-configured.untouched",
)

NODE_UDP = service("node-udp", "a1", "b1", type=Type.NODE_PORT, ports=UDP_PORT)
NODE_UDP_LOCAL = NODE_UDP.replace(name="node-udp-local", external_policy=LOCAL)

DATAGRAMS_AT_CONFIGURED_ADDRESSES = case(
    "node-port.datagrams-at-configured-addresses",
    "With a list of ranges datagrams are served at addresses inside and left alone outside, under either policy.",
    Apply(NODE_UDP, NODE_UDP_LOCAL),
    Probe(sender=client("a"), to=NODE_UDP.node_port("a"), expect=FROM_BOTH, clauses=(LISTED,)),
    Probe(sender=client("a"), to=NODE_UDP_LOCAL.node_port("a"), expect=delivered_to("a1"), clauses=(LISTED,)),
    *(
        Probe(sender=sender, to=of.node_port("a", second=True), expect=UNTOUCHED, clauses=(UNLISTED,))
        for sender in (client("a"), pod("a2"), host("a"))
        for of in (NODE_UDP, NODE_UDP_LOCAL)
    ),
    clauses=REWRITTEN | {"node-port.reaches-ready-endpoint", UDP_SERVED, KEPT, LISTED, UNLISTED},
    features={Feature.NODE_PORT} | EXTERNAL,
    profile=NODE_PORT_CIDR,
)

ON_LOOPBACK = service("on-loopback", "a1", "b1", type=Type.NODE_PORT, ports=BOTH_PROTOCOLS)
LOCALHOST = "node-port.localhost.enabled.served"

LOCALHOST_COMBINED = case(
    "node-port.localhost-over-udp-and-without-endpoints",
    "Node ports on 127.0.0.1 serve datagrams too, and refuse where there is no endpoint.",
    Apply(ON_LOOPBACK, empty := ON_LOOPBACK.replace(name="empty", endpoints=())),
    Probe(
        sender=host("a"),
        to=ON_LOOPBACK.localhost("a").at("a"),
        expect=FROM_BOTH,
        spread=True,
        clauses=(LOCALHOST,),
    ),
    Probe(
        sender=host("a"),
        to=ON_LOOPBACK.localhost("a").at("b"),
        expect=FROM_BOTH,
        spread=True,
        clauses=(LOCALHOST,),
    ),
    Probe(sender=host("a"), to=empty.localhost("a").at("a"), expect=REJECTED, clauses=(REFUSED,)),
    Probe(sender=host("a"), to=empty.localhost("a").at("b"), expect=REJECTED, clauses=(REFUSED,)),
    clauses=REWRITTEN | SPREAD | {"node-port.reaches-ready-endpoint", UDP_SERVED, LOCALHOST, REFUSED},
    features={Feature.NODE_PORT, Feature.LOCALHOST_NODE_PORTS},
    profile=NO_DETECTOR,
    families=(Family.IPV4,),
)

LARGE = OPEN.replace(name="large", ports=BOTH_PROTOCOLS)
LARGE_LOCAL = LARGE.replace(name="large-local", external_policy=Policy.LOCAL)
PASSES = "payload.large.passes"

LARGE_PAYLOADS = case(
    "node-port.large-payloads-at-every-address",
    "Large requests and answers pass at every kind of address, rewritten or not, UDP fragments included.",
    Apply(LARGE, LARGE_LOCAL),
    *(
        Probe(sender=client("a"), to=to, expect=expect, payload_bytes=5000, clauses=(PASSES,))
        for of, expect in ((LARGE, FROM_BOTH), (LARGE_LOCAL, delivered_to("a1")))
        for port in ("a", "b")
        for to in external_targets(of, "a", port)
    ),
    clauses=EVERY_KIND | REWRITTEN | {UDP_SERVED, KEPT, PASSES},
    features=EXPOSED | EXTERNAL,
)

CASES: tuple[Case, ...] = (
    DATAGRAMS_AT_CONFIGURED_ADDRESSES,
    LOCALHOST_COMBINED,
    LARGE_PAYLOADS,
)
