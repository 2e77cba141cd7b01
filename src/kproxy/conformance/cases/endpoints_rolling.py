"""Cases on rolling updates: pods are replaced under clients that never pause.

Only values; the vocabulary is `kproxy.conformance.case`.  A new pod is ready before an old one begins to terminate, and
an old one serves as long as it is listed, as `terminationGracePeriodSeconds` and a load balancer's health checks give it time to.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    Apply,
    Backend,
    Case,
    ContinuousProbe,
    Feature,
    Policy,
    Probe,
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
from kproxy.conformance.cases.common import SPREAD

OLD, NEW = ("a1", "b1"), ("a2", "b2")
LEAVING = tuple(Backend(on=on, ready=False, serving=True, terminating=True) for on in OLD)

WEB = service("web", *OLD, type=Type.LOAD_BALANCER, vips=(Vip(),))
LOCAL = WEB.replace(external_policy=Policy.LOCAL)

NEVER_FAILS = ("change.rolling-update.no-failed-connection",)

FEATURES = {Feature.NODE_PORT, Feature.LOAD_BALANCER, Feature.TERMINATING_ENDPOINTS}

FROM_ALL = delivered_to(*OLD, *NEW, source=MASQUERADED)

ROLLING_UPDATE = case(
    "terminating.rolling-update",
    "While all pods are replaced, no connection of a client outside or inside fails.",
    Apply(WEB),
    ContinuousProbe(sender=client("a"), to=WEB.node_port("a"), expect=FROM_ALL, clauses=NEVER_FAILS),
    ContinuousProbe(sender=remote("b"), to=WEB.vip(), expect=FROM_ALL, clauses=NEVER_FAILS),
    ContinuousProbe(
        sender=pod("a3"), to=WEB.cluster_ip, expect=delivered_to(*OLD, *NEW), clauses=NEVER_FAILS
    ),
    Apply(WEB.replace(backends=pods(*OLD, *NEW))),
    Probe(sender=pod("a3"), to=WEB.cluster_ip, expect=delivered_to(*OLD, *NEW), spread=True),
    Apply(WEB.replace(backends=(*LEAVING, *pods(*NEW)))),
    Probe(sender=pod("a3"), to=WEB.cluster_ip, expect=delivered_to(*NEW), spread=True),
    Apply(WEB.replace(backends=pods(*NEW))),
    Probe(
        sender=client("a"), to=WEB.node_port("a"), expect=delivered_to(*NEW, source=MASQUERADED), spread=True
    ),
    clauses=SPREAD
    | {
        "cluster-ip.reaches-ready-endpoint",
        "masquerade.cluster-ip.pod-source-preserved",
        "node-port.reaches-ready-endpoint",
        "load-balancer.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
        "endpoints.terminating.not-used-beside-ready",
        *NEVER_FAILS,
    },
    features=FEATURES,
    regressions={"R104"},
)

ROLLING_UPDATE_UNDER_LOCAL_POLICY = case(
    "terminating.rolling-update-under-local-policy",
    "The same under external policy Local, where each node's pod is replaced by another of that node.",
    Apply(LOCAL),
    ContinuousProbe(
        sender=client("a"), to=LOCAL.node_port("a"), expect=delivered_to("a1", "a2"), clauses=NEVER_FAILS
    ),
    ContinuousProbe(sender=remote("b"), to=LOCAL.vip(), expect=delivered_to("b1", "b2"), clauses=NEVER_FAILS),
    Apply(LOCAL.replace(backends=pods(*OLD, *NEW))),
    Probe(sender=client("a"), to=LOCAL.node_port("a"), expect=delivered_to("a1", "a2"), spread=True),
    Apply(LOCAL.replace(backends=(*LEAVING, *pods(*NEW)))),
    Probe(sender=client("a"), to=LOCAL.node_port("a"), expect=delivered_to("a2"), count=8),
    Apply(LOCAL.replace(backends=pods(*NEW))),
    Probe(sender=remote("b"), to=LOCAL.vip(), expect=delivered_to("b2"), count=8),
    clauses=SPREAD
    | {
        "node-port.reaches-ready-endpoint",
        "load-balancer.reaches-ready-endpoint",
        "external-policy.local.local-endpoints-source-preserved",
        "endpoints.terminating.not-used-beside-ready",
        *NEVER_FAILS,
    },
    features=FEATURES | {Feature.EXTERNAL_TRAFFIC_POLICY},
    regressions={"R096"},
)

CASES: tuple[Case, ...] = (ROLLING_UPDATE, ROLLING_UPDATE_UNDER_LOCAL_POLICY)
