"""Cases on a kernel that is slow to take what a node's proxy writes: what packets meet while a change is half written.

Only values; the vocabulary is `kproxy.conformance.case`.  All of them disturb node b in their second round, in which
they change Services, and let it go on in their third. Clients send before, during and after the change, and each of
their connections is handled as one of these two states demands. Cases of `kproxy.conformance.cases.writes` share the
profile: they disturb node a, and in the same rounds.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    UNTOUCHED,
    AllowWrites,
    Apply,
    Case,
    ContinuousProbe,
    DelayWrites,
    Feature,
    Lawful,
    Policy,
    Probe,
    SourceRange,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    pod,
    pods,
    remote,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import NODE_PORT_CLAUSES, POD_CLAUSES, UDP_PORT
from kproxy.conformance.cases.profiles import WRITES

FEATURES = {Feature.REFUSED_WRITES}

WHOLE = "change.half-written.never-met"


def _masqueraded_to(*endpoints: str) -> Lawful:
    return delivered_to(*endpoints, source=MASQUERADED)


FIRST = service("first", type=Type.NODE_PORT)
LAST = service("last", "a1", type=Type.NODE_PORT)
MOVED = service("moved", "a1", "b1", type=Type.NODE_PORT)

ENDPOINTS_COME_AND_GO = case(
    "writes.slow-as-endpoints-come-and-go",
    "A Service that gets its first endpoint is refused or served at each moment, one that loses its last as well, and one whose "
    "endpoints are replaced is served, though the node's kernel is slow to take what its proxy writes.",
    Apply(FIRST, LAST, MOVED),
    *(
        ContinuousProbe(
            sender=pod("b2"), to=to.cluster_ip, expect=delivered_to("a1") | REJECTED, clauses=(WHOLE,)
        )
        for to in (FIRST, LAST)
    ),
    *(
        ContinuousProbe(
            sender=client("b"),
            to=to.node_port("b"),
            expect=_masqueraded_to("a1") | REJECTED,
            clauses=(WHOLE,),
        )
        for to in (FIRST, LAST)
    ),
    ContinuousProbe(
        sender=pod("b2"), to=MOVED.cluster_ip, expect=delivered_to("a1", "b1", "a2", "b3"), clauses=(WHOLE,)
    ),
    Probe(sender=pod("b2"), to=FIRST.cluster_ip, expect=REJECTED),
    Probe(sender=pod("b2"), to=LAST.cluster_ip, expect=delivered_to("a1")),
    DelayWrites("b"),
    Apply(
        FIRST.replace(endpoints=pods("a1")),
        LAST.replace(endpoints=()),
        MOVED.replace(endpoints=pods("a2", "b3")),
    ),
    Probe(sender=pod("b2"), to=FIRST.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=client("b"), to=FIRST.node_port("b"), expect=_masqueraded_to("a1")),
    Probe(sender=pod("b2"), to=LAST.cluster_ip, expect=REJECTED),
    Probe(sender=pod("b2"), to=MOVED.cluster_ip, expect=delivered_to("a2", "b3"), spread=True),
    AllowWrites("b"),
    Probe(sender=pod("b2"), to=MOVED.cluster_ip, expect=delivered_to("a2", "b3"), spread=True),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | {"balancing.every-endpoint-chosen", "endpoints.none.rejected", "node-port.every-node.served", WHOLE},
    features=FEATURES | {Feature.NODE_PORT},
    profile=WRITES,
)

CLOSED = SourceRange.NOWHERE, SourceRange.REMOTE_NETWORK
GUARDED = service(
    "guarded", "a1", type=Type.LOAD_BALANCER, vips=(Vip(),), source_ranges=CLOSED, ports=UDP_PORT
)
GOING, CAME = GUARDED.replace(name="going"), GUARDED.replace(name="coming")

ACCESS_IS_NEVER_OPEN = case(
    "writes.slow-access-is-never-open",
    "A datagram from outside the source ranges of a Service gets no access while the Service loses its load balancer, nor while one "
    "gets a load balancer and ranges, though the node's kernel is slow to take what its proxy writes.",
    Apply(GUARDED, GOING, service("coming", "a1", ports=UDP_PORT)),
    Probe(sender=remote("b"), to=GOING.vip(), expect=_masqueraded_to("a1")),
    *(
        ContinuousProbe(sender=client("b"), to=to.vip(), expect=DROPPED | UNTOUCHED, clauses=(WHOLE,))
        for to in (GOING, CAME)
    ),
    Probe(sender=client("b"), to=GUARDED.vip(), expect=DROPPED),
    DelayWrites("b"),
    Apply(service("going", "a1", ports=UDP_PORT), CAME),
    Probe(sender=remote("b"), to=CAME.vip(), expect=_masqueraded_to("a1")),
    Probe(sender=client("b"), to=CAME.vip(), expect=DROPPED),
    Probe(sender=remote("b"), to=GOING.vip(), expect=UNTOUCHED, clauses=(change.TYPE,)),
    AllowWrites("b"),
    Probe(sender=remote("b"), to=CAME.vip(), expect=_masqueraded_to("a1")),
    clauses={
        "load-balancer.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "protocol.udp.served",
        "source-ranges.inside-allowed",
        "source-ranges.outside-dropped",
        "traffic.not-for-a-service.untouched",
        change.TYPE,
        WHOLE,
    },
    features=FEATURES | {Feature.LOAD_BALANCER, Feature.SOURCE_RANGES},
    profile=WRITES,
)

WIDE = service("wide", "a1", "b1", type=Type.NODE_PORT)
WIDENED = service("widened", "a1", "b1", type=Type.NODE_PORT, external_policy=Policy.LOCAL)

POLICIES_FLIP = case(
    "writes.slow-as-policies-change",
    "A Service whose policies become Local, and one whose policy becomes Cluster, are served at each moment by one or the "
    "other, though the node's kernel is slow to take what its proxy writes.",
    Apply(WIDE, WIDENED),
    *(
        ContinuousProbe(
            sender=client("b"),
            to=to.node_port("b"),
            expect=_masqueraded_to("a1", "b1") | delivered_to("b1"),
            clauses=(WHOLE,),
        )
        for to in (WIDE, WIDENED)
    ),
    ContinuousProbe(sender=pod("b2"), to=WIDE.cluster_ip, expect=delivered_to("a1", "b1"), clauses=(WHOLE,)),
    Probe(sender=client("b"), to=WIDENED.node_port("b"), expect=delivered_to("b1")),
    DelayWrites("b"),
    Apply(
        WIDE.replace(external_policy=Policy.LOCAL, internal_policy=Policy.LOCAL),
        WIDENED.replace(external_policy=Policy.CLUSTER),
    ),
    Probe(sender=client("b"), to=WIDE.node_port("b"), expect=delivered_to("b1"), count=8),
    Probe(sender=pod("b2"), to=WIDE.cluster_ip, expect=delivered_to("b1"), count=8),
    Probe(sender=client("b"), to=WIDENED.node_port("b"), expect=_masqueraded_to("a1", "b1"), spread=True),
    AllowWrites("b"),
    Probe(sender=client("b"), to=WIDE.node_port("b"), expect=delivered_to("b1")),
    clauses=POD_CLAUSES
    | NODE_PORT_CLAUSES
    | {
        "balancing.every-endpoint-chosen",
        "external-policy.cluster-ip-exempt",
        "external-policy.local.local-endpoints-source-preserved",
        "internal-policy.external-addresses-exempt",
        "internal-policy.local.same-node",
        WHOLE,
    },
    features=FEATURES | {Feature.NODE_PORT, Feature.INTERNAL_TRAFFIC_POLICY, Feature.EXTERNAL_TRAFFIC_POLICY},
    profile=WRITES,
)

CASES: tuple[Case, ...] = (ENDPOINTS_COME_AND_GO, ACCESS_IS_NEVER_OPEN, POLICIES_FLIP)
