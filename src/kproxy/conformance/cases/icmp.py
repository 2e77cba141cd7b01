"""Cases of the topic icmp: ICMP errors about served flows, and pings.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    REJECTED,
    SAME_ENDPOINT,
    UNTOUCHED,
    Apply,
    Case,
    Feature,
    Open,
    Ping,
    Policy,
    Probe,
    Send,
    StopListening,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    host,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases.common import (
    ANYWHERE,
    DATAGRAMS,
    FROM_B1,
    FROM_BOTH,
    HOST_CLAUSES,
    LOCAL_CLAUSES,
    NODE_PORT_CLAUSES,
    ON_B1,
    POD_CLAUSES,
    SPREAD,
    UDP_PORT,
)
from kproxy.conformance.cases.profiles import FORWARD_DROP

DNS = service("dns", "b1", type=Type.LOAD_BALANCER, ports=UDP_PORT, vips=(Vip(),))


ERRORS = "icmp.errors.translated-back"

REFUSAL_BY_THE_ENDPOINT = case(
    "icmp.refusal-by-the-endpoint",
    "What an endpoint's own kernel refuses, the client gets as an error from the address that it sent to; "
    "at every address.",
    Apply(DNS, beside := service("beside", "b1", ports=UDP_PORT)),
    Open(flow="pod", sender=pod("a2"), to=DNS.cluster_ip, expect=ON_B1),
    Open(flow="node", sender=host("a"), to=DNS.cluster_ip, expect=FROM_B1),
    Open(flow="outside", sender=client("a"), to=DNS.node_port("a"), expect=FROM_B1),
    Open(flow="routed", sender=remote("a"), to=DNS.vip(), expect=FROM_B1),
    Open(flow="beside", sender=pod("a2"), to=beside.cluster_ip, expect=ON_B1),
    StopListening(flow="pod"),
    Send(flow="pod", expect=REJECTED, clauses=(ERRORS,)),
    Send(flow="node", expect=REJECTED, clauses=(ERRORS,)),
    Send(flow="outside", expect=REJECTED, clauses=(ERRORS,)),
    Send(flow="routed", expect=REJECTED, clauses=(ERRORS,)),
    Send(flow="beside", expect=SAME_ENDPOINT, clauses=("cluster-ip.reaches-ready-endpoint",)),
    clauses=POD_CLAUSES
    | HOST_CLAUSES
    | NODE_PORT_CLAUSES
    | ANYWHERE
    | DATAGRAMS
    | {"load-balancer.reaches-ready-endpoint", ERRORS},
    features={Feature.NODE_PORT, Feature.LOAD_BALANCER},
)

FORWARDED = "node-port.forward-policy-drop.passes"

REFUSAL_WHERE_FORWARDING_IS_DROPPED = case(
    "icmp.refusal-where-forwarding-is-dropped",
    "A node that drops what it would forward lets errors pass that belong to what it serves.",
    Apply(DNS),
    Open(flow="outside", sender=client("a"), to=DNS.node_port("a"), expect=FROM_B1, clauses=(FORWARDED,)),
    StopListening(flow="outside"),
    Send(flow="outside", expect=REJECTED, clauses=(ERRORS, FORWARDED)),
    clauses=NODE_PORT_CLAUSES | ANYWHERE | DATAGRAMS | {ERRORS, FORWARDED},
    features={Feature.NODE_PORT, Feature.FORWARD_POLICY},
    profile=FORWARD_DROP,
)

LARGE = "payload.large.passes"

LARGE_ANSWERS_OVER_A_NARROW_LINK = case(
    "icmp.large-answers-over-a-narrow-link",
    "When a router beyond the node finds answers too large, its error reaches the endpoint, rewritten or not: they pass.",
    Apply(
        wide := service("wide", "a1", "b1", type=Type.NODE_PORT),
        near := service("near", "a1", "b1", type=Type.NODE_PORT, external_policy=Policy.LOCAL),
    ),
    Probe(
        sender=remote("a"),
        to=wide.node_port("a"),
        expect=FROM_BOTH,
        spread=True,
        payload_bytes=9000,
        clauses=(ERRORS, LARGE),
    ),
    Probe(
        sender=remote("a"),
        to=near.node_port("a"),
        expect=delivered_to("a1"),
        payload_bytes=9000,
        clauses=(ERRORS, LARGE),
    ),
    clauses=NODE_PORT_CLAUSES | LOCAL_CLAUSES | SPREAD | {ERRORS, LARGE},
    features={Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY},
    regressions={"R123"},
)

PINGED = "icmp.ping.refused-or-routed"

PINGS = case(
    "icmp.pings",
    "A ping to an address of a Service is refused, or goes where routing takes it; the node does not answer it.",
    Apply(DNS, outer := service("outer", "b1", external_ips=1)),
    Ping(sender=client("a"), to=outer.external_ip(), expect=REJECTED | UNTOUCHED, clauses=(PINGED,)),
    Ping(sender=pod("a2"), to=DNS.cluster_ip, expect=REJECTED | UNTOUCHED, clauses=(PINGED,)),
    Ping(sender=host("a"), to=DNS.cluster_ip, expect=REJECTED | UNTOUCHED, clauses=(PINGED,)),
    Ping(sender=client("a"), to=DNS.cluster_ip, expect=REJECTED | UNTOUCHED, clauses=(PINGED,)),
    Ping(sender=pod("a2"), to=DNS.vip(), expect=REJECTED | UNTOUCHED, clauses=(PINGED,)),
    Ping(sender=client("b"), to=DNS.vip(), expect=REJECTED | UNTOUCHED, clauses=(PINGED,)),
    Probe(sender=pod("a2"), to=DNS.cluster_ip, expect=ON_B1),
    clauses=POD_CLAUSES | DATAGRAMS | {PINGED},
    features={Feature.LOAD_BALANCER, Feature.EXTERNAL_IPS},
    regressions={"R051"},
)

CASES: tuple[Case, ...] = (
    REFUSAL_BY_THE_ENDPOINT,
    REFUSAL_WHERE_FORWARDING_IS_DROPPED,
    LARGE_ANSWERS_OVER_A_NARROW_LINK,
    PINGS,
)
