"""Cases that combine source ranges, affinity, hints and configurations with kinds of address, policies and protocols.

Only values; the vocabulary is `kproxy.conformance.case`.  See `kproxy.conformance.cases.combined`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    UNTOUCHED,
    Apply,
    Backend,
    Case,
    Feature,
    Policy,
    Probe,
    SourceRange,
    Type,
    case,
    client,
    delivered_to,
    host,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases.combined import (
    BOTH_PROTOCOLS,
    EXPOSED,
    EXTERNAL,
    FROM_BOTH,
    INSIDE,
    INTERNAL,
    ITSELF,
    KEPT,
    OPEN,
    OUTSIDE,
    OUTSIDE_CLAUSES,
    PODS_EVERYWHERE,
    REFUSED,
    REWRITTEN,
    SPREAD,
    UDP_PORT,
    UDP_SERVED,
    external_targets,
    probe_each_address,
)
from kproxy.conformance.cases.profiles import MASQUERADE_ALL, NO_DETECTOR, NODE_PORT_CIDR
from kproxy.model.network import Family

LOCAL = Policy.LOCAL

# ------------------------------------------------------------------- source ranges

GUARDED_LOCAL = OPEN.replace(
    name="guarded",
    external_ips=0,
    external_policy=LOCAL,
    ports=BOTH_PROTOCOLS,
    source_ranges=(SourceRange.REMOTE_NETWORK, "a2"),
)

RANGES_UNDER_LOCAL_POLICY = case(
    "source-ranges.of-every-port-under-policy-local",
    "Ranges hold for each port and protocol under policy Local, for pods too, which else reach endpoints anywhere.",
    Apply(GUARDED_LOCAL),
    *(
        probe
        for port in ("a", "b")
        for probe in (
            Probe(
                sender=remote("a"),
                to=GUARDED_LOCAL.vip().at(port),
                expect=delivered_to("a1"),
                clauses=(INSIDE, KEPT),
            ),
            Probe(sender=client("a"), to=GUARDED_LOCAL.vip().at(port), expect=DROPPED, clauses=(OUTSIDE,)),
            Probe(sender=pod("a3"), to=GUARDED_LOCAL.vip().at(port), expect=DROPPED, clauses=(OUTSIDE,)),
            Probe(
                sender=pod("a2"),
                to=GUARDED_LOCAL.vip().at(port),
                expect=delivered_to("a1", "b1"),
                clauses=(INSIDE, PODS_EVERYWHERE),
            ),
        )
    ),
    clauses={
        "load-balancer.reaches-ready-endpoint",
        UDP_SERVED,
        KEPT,
        INSIDE,
        OUTSIDE,
        PODS_EVERYWHERE,
        "source-ranges.apply-to-pods",
    },
    features={Feature.LOAD_BALANCER, Feature.SOURCE_RANGES} | EXTERNAL,
)

# ------------------------------------------------------------------- affinity and hints

STICKY = OPEN.replace(
    name="sticky", affinity_seconds=10800, external_policy=LOCAL, backends=(*OPEN.backends, Backend(on="a2"))
)
STICKS, WITHIN = "affinity.client-ip.sticks", "affinity.within-policy"

AFFINITY_UNDER_LOCAL_POLICY = case(
    "affinity.under-local-policy-at-every-address",
    "Under policy Local a client outside sticks to an endpoint of the node at every kind of address.",
    Apply(STICKY),
    *(
        Probe(
            sender=sender,
            to=to,
            expect=delivered_to("a1", "a2"),
            count=8,
            clauses=(WITHIN,),
        )
        for sender in (client("a"), remote("a"))
        for to in external_targets(STICKY, "a")
    ),
    clauses=OUTSIDE_CLAUSES | {KEPT, WITHIN},
    features=EXPOSED | EXTERNAL | {Feature.SESSION_AFFINITY},
    regressions={"R091"},
)

PERSONAL = OPEN.replace(
    name="personal",
    ports=BOTH_PROTOCOLS,
    backends=(
        Backend(on="a1", zones=("zone-a",), nodes=("b",)),
        Backend(on="b1", zones=("zone-b",), nodes=("a",)),
    ),
)
SAME_NODE, HINTED = "topology.same-node", "topology.external-traffic.hints-followed"

NODE_HINTS_OUTSIDE = case(
    "topology.node-hints-bind-traffic-from-outside",
    "Hints for nodes bind every kind of address, connections and datagrams, by the node that the packet came to.",
    Apply(PERSONAL),
    *probe_each_address(
        client("a"), PERSONAL, delivered_to("b1", source=MASQUERADED), SAME_NODE, HINTED, port="a"
    ),
    *probe_each_address(
        client("b"), PERSONAL, delivered_to("a1", source=MASQUERADED), SAME_NODE, HINTED, port="b"
    ),
    *probe_each_address(
        host("a"), PERSONAL, delivered_to("b1", source=MASQUERADED), SAME_NODE, HINTED, port="b"
    ),
    clauses=OUTSIDE_CLAUSES | REWRITTEN | {UDP_SERVED, SAME_NODE, HINTED, "node-port.every-node.served"},
    features=EXPOSED | {Feature.TOPOLOGY_HINTS},
)

# ------------------------------------------------------------------- other configurations

ALL_REWRITTEN = "masquerade.all.cluster-ip-rewritten"
INTERNAL_LOCAL = OPEN.replace(name="internal-local", internal_policy=LOCAL, ports=BOTH_PROTOCOLS)

ALL_UNDER_INTERNAL_LOCAL = case(
    "masquerade.all-under-internal-policy-local",
    "With masqueradeAll a pod that internal policy Local keeps on its node is rewritten too, connections and datagrams.",
    Apply(INTERNAL_LOCAL),
    *(
        Probe(sender=sender, to=INTERNAL_LOCAL.cluster_ip.at(port), expect=ITSELF, clauses=(ALL_REWRITTEN,))
        for sender in (pod("a1"), pod("a2"))
        for port in ("a", "b")
    ),
    *probe_each_address(pod("a2"), INTERNAL_LOCAL, FROM_BOTH, port="b"),
    clauses=OUTSIDE_CLAUSES
    | REWRITTEN
    | {
        "cluster-ip.reaches-ready-endpoint",
        UDP_SERVED,
        ALL_REWRITTEN,
        "internal-policy.local.same-node",
        "internal-policy.external-addresses-exempt",
    },
    features=EXPOSED | INTERNAL | {Feature.MASQUERADE_ALL},
    profile=MASQUERADE_ALL,
)

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
    Apply(ON_LOOPBACK, nobody := ON_LOOPBACK.replace(name="nobody", backends=())),
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
    Probe(sender=host("a"), to=nobody.localhost("a").at("a"), expect=REJECTED, clauses=(REFUSED,)),
    Probe(sender=host("a"), to=nobody.localhost("a").at("b"), expect=REJECTED, clauses=(REFUSED,)),
    clauses=REWRITTEN | SPREAD | {"node-port.reaches-ready-endpoint", UDP_SERVED, LOCALHOST, REFUSED},
    features={Feature.NODE_PORT, Feature.LOCALHOST_NODE_PORTS},
    profile=NO_DETECTOR,
    families=(Family.IPV4,),
)

CASES: tuple[Case, ...] = (
    RANGES_UNDER_LOCAL_POLICY,
    AFFINITY_UNDER_LOCAL_POLICY,
    NODE_HINTS_OUTSIDE,
    ALL_UNDER_INTERNAL_LOCAL,
    DATAGRAMS_AT_CONFIGURED_ADDRESSES,
    LOCALHOST_COMBINED,
)
