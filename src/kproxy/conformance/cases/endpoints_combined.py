"""Cases of the topic endpoints where several features act together, and at extremes.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    REJECTED,
    Apply,
    Case,
    CaseEndpoint,
    Feature,
    Port,
    Probe,
    case,
    client,
    delivered_to,
    host,
    pod,
    remote,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.combinations import (
    BOTH_PROTOCOLS,
    EVERY_IP,
    EXPOSED,
    EXTERNAL,
    INTERNAL,
    KEPT,
    LOCAL,
    OPEN,
    REFUSED,
    REWRITTEN,
    SEVERAL,
    UDP_SERVED,
    probe_each_address,
)
from kproxy.conformance.cases.common import EVERY_KIND, FROM_BOTH, POD_CLAUSES, SPREAD
from kproxy.model.network import Protocol

EMPTIED = (REFUSED, change.EMPTIED)

ENDING = (CaseEndpoint(on="a1", ready=False, serving=True, terminating=True), CaseEndpoint(on="b1"))

FALLING_BACK = OPEN.replace(
    name="falling-back", ports=BOTH_PROTOCOLS, endpoints=ENDING, internal_policy=LOCAL, external_policy=LOCAL
)

FALL_BACK = "endpoints.terminating.used-when-none-ready-on-node"

TERMINATING_AT_EVERY_ADDRESS = case(
    "terminating.under-local-policies-at-every-address",
    "Where a node's last endpoint terminates it serves that node's addresses of every kind, connections and datagrams.",
    Apply(FALLING_BACK),
    *probe_each_address(client("a"), FALLING_BACK, delivered_to("a1"), FALL_BACK, port="a"),
    *probe_each_address(remote("a"), FALLING_BACK, delivered_to("a1"), FALL_BACK, port="b"),
    Probe(
        sender=pod("a2"), to=FALLING_BACK.cluster_ip.at("a"), expect=delivered_to("a1"), clauses=(FALL_BACK,)
    ),
    Probe(
        sender=pod("a2"), to=FALLING_BACK.cluster_ip.at("b"), expect=delivered_to("a1"), clauses=(FALL_BACK,)
    ),
    *probe_each_address(client("b"), FALLING_BACK, delivered_to("b1"), KEPT, port="a"),
    clauses=EVERY_KIND
    | POD_CLAUSES
    | {
        UDP_SERVED,
        KEPT,
        FALL_BACK,
        "internal-policy.local.same-node",
        "internal-policy.external-addresses-exempt",
        "external-policy.cluster-ip-exempt",
    },
    features=EXPOSED | EXTERNAL | INTERNAL | {Feature.TERMINATING_ENDPOINTS},
)

ALL_ENDING = OPEN.replace(
    name="all-ending",
    ports=BOTH_PROTOCOLS,
    endpoints=tuple(CaseEndpoint(on=on, ready=False, serving=True, terminating=True) for on in ("a1", "b1")),
)

STEP_IN = "endpoints.terminating.used-when-none-ready"

TERMINATING_UNDER_CLUSTER_POLICY = case(
    "terminating.all-of-them-at-every-address",
    "When all endpoints terminate, every kind of address leads to each of them, connections and datagrams.",
    Apply(ALL_ENDING),
    *probe_each_address(client("a"), ALL_ENDING, FROM_BOTH, STEP_IN, port="a", spread=True),
    *probe_each_address(pod("b2"), ALL_ENDING, FROM_BOTH, STEP_IN, port="b", spread=True),
    clauses=EVERY_KIND | REWRITTEN | SPREAD | {UDP_SERVED, STEP_IN},
    features=EXPOSED | {Feature.TERMINATING_ENDPOINTS},
)

HALF = OPEN.replace(
    name="half",
    ports=(Port(name="a"), Port(name="b", number=81), Port(name="c", number=53, protocol=Protocol.UDP)),
    slice_ports=(Port(name="a"),),
)

ONE_PORT_WITHOUT_ENDPOINTS = case(
    "no-endpoints.ports-of-a-served-service",
    "Of a Service whose slices list one of its ports the others are refused at every kind of address, and that one is served.",
    Apply(HALF),
    *probe_each_address(client("a"), HALF, REJECTED, REFUSED, port="b"),
    *probe_each_address(pod("b2"), HALF, REJECTED, REFUSED, port="c"),
    Probe(sender=pod("a2"), to=HALF.cluster_ip.at("b"), expect=REJECTED, clauses=(REFUSED,)),
    Probe(sender=host("a"), to=HALF.cluster_ip.at("c"), expect=REJECTED, clauses=(REFUSED,)),
    *probe_each_address(client("a"), HALF, FROM_BOTH, port="a"),
    Probe(sender=pod("a2"), to=HALF.cluster_ip.at("a"), expect=delivered_to("a1", "b1")),
    clauses=EVERY_KIND | POD_CLAUSES | REWRITTEN | {REFUSED, "slices.ports.matched-by-name-and-protocol"},
    features=EXPOSED,
    regressions={"R105"},
)

WHOLE = HALF.replace(name="whole", slice_ports=None)
PORTS_LEFT = WHOLE.replace(slice_ports=HALF.slice_ports)

PORTS_LEAVE_THE_SLICES = case(
    "no-endpoints.ports-leave-the-slices",
    "Ports that a Service's slices list no longer are refused, and served when they are listed again; another port is served throughout.",
    Apply(WHOLE),
    Probe(sender=pod("a2"), to=WHOLE.cluster_ip.at("b"), expect=delivered_to("a1", "b1")),
    *probe_each_address(client("a"), WHOLE, FROM_BOTH, UDP_SERVED, port="c"),
    Apply(PORTS_LEFT),
    Probe(sender=pod("a2"), to=WHOLE.cluster_ip.at("b"), expect=REJECTED, clauses=EMPTIED),
    *probe_each_address(client("a"), WHOLE, REJECTED, *EMPTIED, port="b"),
    *probe_each_address(pod("b2"), WHOLE, REJECTED, *EMPTIED, port="c"),
    Probe(sender=pod("a2"), to=WHOLE.cluster_ip.at("a"), expect=delivered_to("a1", "b1")),
    Apply(WHOLE),
    Probe(
        sender=pod("a2"),
        to=WHOLE.cluster_ip.at("b"),
        expect=delivered_to("a1", "b1"),
        clauses=(change.ENDPOINT_ADDED,),
    ),
    *probe_each_address(client("a"), WHOLE, FROM_BOTH, change.ENDPOINT_ADDED, port="c"),
    clauses=EVERY_KIND
    | POD_CLAUSES
    | REWRITTEN
    | {*EMPTIED, UDP_SERVED, change.ENDPOINT_ADDED, "slices.ports.matched-by-name-and-protocol"},
    features=EXPOSED,
)

EMPTY_SEVERAL = SEVERAL.replace(name="empty", endpoints=(), external_policy=LOCAL, ports=BOTH_PROTOCOLS)

REFUSED_AT_EACH = case(
    "no-endpoints.each-of-several-addresses",
    "Without endpoints each of several addresses refuses, connections and datagrams, under policy Local too.",
    Apply(EMPTY_SEVERAL, SEVERAL),
    *probe_each_address(client("a"), EMPTY_SEVERAL, REJECTED, REFUSED, port="a"),
    *probe_each_address(pod("b2"), EMPTY_SEVERAL, REJECTED, REFUSED, port="b"),
    *probe_each_address(client("a"), SEVERAL, FROM_BOTH),
    clauses=EVERY_KIND | REWRITTEN | {REFUSED, EVERY_IP},
    features=EXPOSED | EXTERNAL,
    regressions={"R105"},
)

CASES: tuple[Case, ...] = (
    TERMINATING_AT_EVERY_ADDRESS,
    TERMINATING_UNDER_CLUSTER_POLICY,
    ONE_PORT_WITHOUT_ENDPOINTS,
    PORTS_LEAVE_THE_SLICES,
    REFUSED_AT_EACH,
)
