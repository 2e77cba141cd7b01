"""Cases on a kernel that refuses for a while what a node's proxy writes for IPv6, and takes what it writes for IPv4.

Only values; the vocabulary is `kproxy.conformance.case`.  All of them disturb node a in their second round, change more in
their third, and let it go on in their fourth, in which nothing else changes; node b is the control.
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
    CheckProxy,
    Delete,
    FailWrites,
    Feature,
    Probe,
    Type,
    case,
    client,
    delivered_to,
    pod,
    pods,
    service,
)
from kproxy.conformance.cases.common import NODE_PORT_CLAUSES, POD_CLAUSES
from kproxy.conformance.cases.profiles import WRITES_OF_ONE_FAMILY
from kproxy.model.network import Family

OTHER_FAMILY = "writes.refused-in-one-family.other-followed"
KEPT = "writes.refused.rules-kept"
CAUGHT_UP = "writes.refused.tried-again"
LATE = "proxy-health.late.told"
PODS = POD_CLAUSES | {"slices.other-family.ignored"}
GONE = {"cluster-ip.unallocated.not-served", "traffic.not-for-a-service.untouched"}
FEATURES = {Feature.REFUSED_WRITES, Feature.IPV6}

WEB = service("web", "a1", type=Type.NODE_PORT)
MOVED = WEB.replace(endpoints=pods("b1", "b3"))
OLD = service("old", "a1", type=Type.NODE_PORT)
NEW = service("new", "b2", type=Type.NODE_PORT)
BOTH = service("both", "a1", dual_stack=True)
NOT_SERVED = DROPPED | UNTOUCHED
REFUSE = FailWrites("a", Family.IPV6)

OTHER_FAMILY_FOLLOWS = case(
    "writes.other-family-follows",
    "While a node's kernel refuses what is written for IPv6, IPv4 follows one change after the other.",
    Apply(WEB, OLD, BOTH),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=client("a"), to=OLD.node_port("a"), expect=delivered_to("a1", source=MASQUERADED)),
    REFUSE,
    Apply(MOVED, BOTH.replace(endpoints=pods("b1"))),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=delivered_to("b1", "b3"),
        spread=True,
        clauses=(OTHER_FAMILY,),
    ),
    Probe(
        sender=client("a"),
        to=WEB.node_port("a"),
        expect=delivered_to("b1", "b3", source=MASQUERADED),
        spread=True,
        clauses=(OTHER_FAMILY,),
    ),
    Probe(sender=pod("a2"), to=BOTH.cluster_ip, expect=delivered_to("b1"), clauses=(OTHER_FAMILY,)),
    Apply(NEW, MOVED.replace(endpoints=()), BOTH),
    Delete(OLD),
    Probe(sender=pod("a2"), to=NEW.cluster_ip, expect=delivered_to("b2"), clauses=(OTHER_FAMILY,)),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=REJECTED, clauses=(OTHER_FAMILY,)),
    Probe(sender=pod("a2"), to=BOTH.cluster_ip, expect=delivered_to("a1"), clauses=(OTHER_FAMILY,)),
    Probe(sender=pod("a2"), to=OLD.cluster_ip, expect=NOT_SERVED, clauses=(OTHER_FAMILY,)),
    Probe(sender=client("a"), to=OLD.node_port("a"), expect=UNTOUCHED, clauses=(OTHER_FAMILY,)),
    AllowWrites("a"),
    Probe(sender=pod("a2"), to=NEW.cluster_ip, expect=delivered_to("b2")),
    clauses=PODS
    | NODE_PORT_CLAUSES
    | GONE
    | {
        "balancing.every-endpoint-chosen",
        "node-port.every-node.served",
        "endpoints.none.rejected",
        OTHER_FAMILY,
    },
    features=FEATURES | {Feature.NODE_PORT},
    families=(Family.IPV4,),
    profile=WRITES_OF_ONE_FAMILY,
)

REFUSED_FAMILY_CATCHES_UP = case(
    "writes.refused-family-catches-up",
    "What was refused for IPv6 alone is in a node's rules soon after its kernel takes it, though IPv4 was never late.",
    Apply(WEB, OLD, BOTH),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1")),
    Probe(sender=client("a"), to=OLD.node_port("a"), expect=delivered_to("a1", source=MASQUERADED)),
    REFUSE,
    Apply(MOVED, BOTH.replace(endpoints=pods("b1"))),
    Probe(sender=pod("b2"), to=WEB.cluster_ip, expect=delivered_to("b1", "b3"), spread=True),
    Probe(sender=pod("a2"), to=WEB.cluster_ip, expect=delivered_to("a1"), count=8, clauses=(KEPT,)),
    Apply(NEW),
    Delete(OLD),
    Probe(sender=pod("a2"), to=OLD.cluster_ip, expect=delivered_to("a1"), clauses=(KEPT,)),
    AllowWrites("a"),
    Probe(
        sender=pod("a2"),
        to=WEB.cluster_ip,
        expect=delivered_to("b1", "b3"),
        spread=True,
        clauses=(CAUGHT_UP,),
    ),
    Probe(
        sender=client("a"),
        to=NEW.node_port("a"),
        expect=delivered_to("b2", source=MASQUERADED),
        clauses=(CAUGHT_UP,),
    ),
    Probe(sender=pod("a2"), to=BOTH.cluster_ip, expect=delivered_to("b1"), clauses=(CAUGHT_UP,)),
    Probe(sender=pod("a2"), to=OLD.cluster_ip, expect=NOT_SERVED, clauses=(CAUGHT_UP,)),
    Probe(sender=client("a"), to=OLD.node_port("a"), expect=UNTOUCHED, clauses=(CAUGHT_UP,)),
    clauses=PODS
    | NODE_PORT_CLAUSES
    | GONE
    | {"balancing.every-endpoint-chosen", "node-port.every-node.served", KEPT, CAUGHT_UP},
    features=FEATURES | {Feature.NODE_PORT},
    families=(Family.IPV6,),
    profile=WRITES_OF_ONE_FAMILY,
)

SOON = 20.0
"""Seconds, of which the second or two that a change may wait here are a part."""


def _check_proxy(node: str, path: str, status: int, timeout: float = SOON) -> CheckProxy:
    return CheckProxy(
        sender=client(node), node=node, path=path, expect=status, clauses=(LATE,), timeout=timeout
    )


HEALTH_IS_THAT_OF_BOTH = case(
    "writes.health-is-that-of-both-families",
    "A proxy whose kernel refuses what it writes for IPv6 alone is not healthy, though IPv4 is up to date and whatever "
    "changes further, until that is written.",
    Apply(BOTH),
    Probe(sender=pod("a2"), to=BOTH.cluster_ip, expect=delivered_to("a1")),
    _check_proxy("a", "/healthz", 200),
    REFUSE,
    Apply(BOTH.replace(endpoints=pods("b1"))),
    _check_proxy("a", "/healthz", 503),
    _check_proxy("b", "/healthz", 200),
    Apply(BOTH.replace(endpoints=pods("b2"))),
    _check_proxy("a", "/livez", 503, timeout=0),
    Probe(sender=pod("a2"), to=BOTH.cluster_ip, expect=delivered_to("b2"), clauses=(OTHER_FAMILY,)),
    AllowWrites("a"),
    _check_proxy("a", "/healthz", 200),
    _check_proxy("a", "/livez", 200),
    clauses=PODS | {OTHER_FAMILY, LATE},
    features=FEATURES | {Feature.PROXY_HEALTH},
    families=(Family.IPV4,),
    profile=WRITES_OF_ONE_FAMILY,
)

CASES: tuple[Case, ...] = (OTHER_FAMILY_FOLLOWS, REFUSED_FAMILY_CATCHES_UP, HEALTH_IS_THAT_OF_BOTH)
