"""Cases on readiness and termination: which endpoints count, when, and for whom; rolling updates.

Only values; the vocabulary is `kproxy.conformance.case`.  In a rolling update a new pod is ready before an old one begins
to terminate, and an old one serves as long as it is listed, as `terminationGracePeriodSeconds` and a load balancer's
health checks give it time to.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    MASQUERADED,
    REJECTED,
    SAME_ENDPOINT,
    Apply,
    Case,
    CaseEndpoint,
    ContinuousProbe,
    Feature,
    Open,
    Policy,
    Port,
    Probe,
    Send,
    Type,
    Vip,
    case,
    client,
    delivered_to,
    host,
    pod,
    pods,
    remote,
    service,
)
from kproxy.conformance.cases import change
from kproxy.conformance.cases.common import (
    FROM_B1,
    FROM_BOTH,
    HOST_CLAUSES,
    LOCAL_CLAUSES,
    POD_CLAUSES,
    SPREAD,
    draining,
    terminated,
)
from kproxy.model.network import Protocol

LOCAL = Policy.LOCAL
TERMINATING = {Feature.TERMINATING_ENDPOINTS}

FALLBACK = {"endpoints.terminating.used-when-none-ready"}


def unready(on: str) -> CaseEndpoint:
    """An endpoint that is starting, or failing its readiness probe."""
    return CaseEndpoint(on=on, ready=False, serving=False, terminating=False)


NEIGHBOUR = service("neighbour", "b3")

ONLY_READY_ONES = case(
    "readiness.only-ready-endpoints",
    "Endpoints that are not ready get nothing while others are.",
    Apply(
        web := service(
            "web", endpoints=(CaseEndpoint(on="a1"), unready("a2"), CaseEndpoint(on="b1"), terminated("b2"))
        )
    ),
    Probe(sender=pod("a3"), to=web.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=host("b"), to=web.cluster_ip, expect=FROM_BOTH, spread=True),
    clauses=POD_CLAUSES | HOST_CLAUSES | SPREAD | {"endpoints.ready-only"},
)

MISSING_CONDITIONS_MEAN_READY = case(
    "readiness.missing-conditions-mean-ready",
    "An endpoint without conditions is used like a ready one.",
    Apply(bare := service("bare", endpoints=(CaseEndpoint(on="a1", ready=None), CaseEndpoint(on="b1")))),
    Probe(sender=pod("a2"), to=bare.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    clauses=POD_CLAUSES | SPREAD | {"endpoints.conditions.missing-means-ready"},
)

READY_FLAG_IS_TRUSTED = case(
    "readiness.ready-flag-is-trusted",
    "Endpoints marked ready are used, though they terminate or do not serve.",
    Apply(
        published := service(
            "published",
            endpoints=(
                CaseEndpoint(on="a1", ready=True, serving=False, terminating=True),
                CaseEndpoint(on="b1", ready=True, serving=False),
                CaseEndpoint(on="b2"),
            ),
        )
    ),
    Probe(sender=pod("a2"), to=published.cluster_ip, expect=delivered_to("a1", "b1", "b2"), spread=True),
    clauses=POD_CLAUSES | SPREAD | {"endpoints.ready-flag-trusted"},
)

NOBODY_USABLE_IS_REFUSED = case(
    "readiness.nobody-usable-is-refused",
    "Endpoints that neither are ready nor serve to the end count as none, from everywhere.",
    Apply(
        dead := service(
            "dead",
            endpoints=(terminated("a1"), unready("b1"), CaseEndpoint(on="b2", ready=False, serving=True)),
            type=Type.NODE_PORT,
        ),
        NEIGHBOUR,
    ),
    Probe(sender=pod("a2"), to=dead.cluster_ip, expect=REJECTED),
    Probe(sender=host("b"), to=dead.cluster_ip, expect=REJECTED),
    Probe(sender=client("a"), to=dead.node_port("a"), expect=REJECTED),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b3")),
    clauses=POD_CLAUSES | {"endpoints.none.rejected", "endpoints.not-serving.never-used"},
    features={Feature.NODE_PORT},
)

TERMINATING_ONES_STEP_IN = case(
    "terminating.step-in-when-none-is-ready",
    "With no ready endpoint those that terminate and serve take connections, at every kind of address.",
    Apply(
        last := service(
            "last",
            endpoints=(draining("a1"), draining("b1"), terminated("b2"), unready("a2")),
            type=Type.LOAD_BALANCER,
            vips=(Vip(),),
        )
    ),
    Probe(sender=pod("a3"), to=last.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=client("a"), to=last.node_port("a"), expect=FROM_BOTH, spread=True),
    Probe(sender=client("b"), to=last.vip(), expect=FROM_BOTH, spread=True),
    clauses=POD_CLAUSES
    | SPREAD
    | FALLBACK
    | {
        "node-port.reaches-ready-endpoint",
        "load-balancer.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
    },
    features=TERMINATING | {Feature.NODE_PORT, Feature.LOAD_BALANCER},
    regressions={"R096"},
)

TERMINATING_ONES_STEP_IN_OVER_UDP = case(
    "terminating.step-in-over-udp",
    "Endpoints that terminate and serve take datagrams when none is ready.",
    Apply(
        names := service(
            "names",
            endpoints=(draining("a1"), draining("b1")),
            ports=(Port(number=53, protocol=Protocol.UDP),),
        )
    ),
    Probe(sender=pod("a3"), to=names.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    clauses=POD_CLAUSES | SPREAD | FALLBACK | {"protocol.udp.served"},
    features=TERMINATING,
)

SERVING_ON = service("serving-on", endpoints=(draining("a1"), draining("b1")), type=Type.NODE_PORT)
ONE_STOPPED = SERVING_ON.replace(endpoints=(terminated("a1"), draining("b1")))
STOPPED = SERVING_ON.replace(endpoints=(terminated("a1"), terminated("b1")))

TERMINATING_ONES_STOP_SERVING = case(
    "terminating.stop-serving-one-after-the-other",
    "Of endpoints that all terminate, one that stops serving gets no more connections; when the last one stops they are refused.",
    Apply(SERVING_ON),
    Probe(sender=pod("a3"), to=SERVING_ON.cluster_ip, expect=delivered_to("a1", "b1"), spread=True),
    Probe(sender=client("a"), to=SERVING_ON.node_port("a"), expect=FROM_BOTH),
    Apply(ONE_STOPPED),
    Probe(
        sender=pod("a3"),
        to=SERVING_ON.cluster_ip,
        expect=delivered_to("b1"),
        count=8,
        clauses=(change.READINESS,),
    ),
    Probe(
        sender=client("a"), to=SERVING_ON.node_port("a"), expect=FROM_B1, count=8, clauses=(change.READINESS,)
    ),
    Apply(STOPPED),
    Probe(sender=pod("a3"), to=SERVING_ON.cluster_ip, expect=REJECTED, clauses=(change.READINESS,)),
    Probe(sender=client("a"), to=SERVING_ON.node_port("a"), expect=REJECTED, clauses=(change.READINESS,)),
    clauses=POD_CLAUSES
    | SPREAD
    | FALLBACK
    | {
        "node-port.reaches-ready-endpoint",
        "node-port.every-node.served",
        "masquerade.external-policy-cluster.rewritten",
        "endpoints.none.rejected",
        "endpoints.not-serving.never-used",
        change.READINESS,
    },
    features=TERMINATING | {Feature.NODE_PORT},
)

TERMINATING_ONES_STAND_BACK = case(
    "terminating.stand-back-beside-a-ready-one",
    "One ready endpoint anywhere is enough, and those that terminate get no new connection.",
    Apply(mixed := service("mixed", endpoints=(CaseEndpoint(on="b1"), draining("a1"), draining("b2")))),
    Probe(sender=pod("a2"), to=mixed.cluster_ip, expect=delivered_to("b1"), count=12),
    Probe(sender=host("b"), to=mixed.cluster_ip, expect=FROM_B1, count=12),
    clauses=POD_CLAUSES | HOST_CLAUSES | {"endpoints.terminating.not-used-beside-ready"},
    features=TERMINATING,
)

EACH_NODE_FALLS_BACK_BY_ITSELF = case(
    "terminating.each-node-falls-back-by-itself",
    "Under policy Local a node whose endpoints all terminate uses them, though another node has a ready one.",
    Apply(
        rolling := service(
            "rolling",
            endpoints=(draining("a1"), CaseEndpoint(on="b1"), draining("b2")),
            type=Type.NODE_PORT,
            external_policy=LOCAL,
        ),
        inner := service(
            "inner",
            endpoints=(draining("a1"), CaseEndpoint(on="b1"), draining("b2")),
            internal_policy=LOCAL,
        ),
    ),
    Probe(sender=client("a"), to=rolling.node_port("a"), expect=delivered_to("a1"), count=6),
    Probe(sender=client("b"), to=rolling.node_port("b"), expect=delivered_to("b1"), count=6),
    Probe(sender=pod("a2"), to=rolling.cluster_ip, expect=delivered_to("b1"), count=6),
    Probe(sender=pod("a2"), to=inner.cluster_ip, expect=delivered_to("a1"), count=6),
    Probe(sender=pod("b3"), to=inner.cluster_ip, expect=delivered_to("b1"), count=6),
    clauses=POD_CLAUSES
    | LOCAL_CLAUSES
    | {
        "internal-policy.local.same-node",
        "external-policy.cluster-ip-exempt",
        "endpoints.terminating.used-when-none-ready-on-node",
        "endpoints.terminating.not-used-beside-ready",
    },
    features=TERMINATING
    | {Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY, Feature.INTERNAL_TRAFFIC_POLICY},
    regressions={"R096"},
)

TERMINATING_ELSEWHERE_ONLY = case(
    "terminating.elsewhere-only",
    "Under policy Local endpoints that terminate on another node do not count; under Cluster they do.",
    Apply(
        away := service("away", endpoints=(draining("b1"),), type=Type.NODE_PORT, external_policy=LOCAL),
        inward := service("inward", endpoints=(draining("b1"),), internal_policy=LOCAL),
    ),
    Probe(sender=client("a"), to=away.node_port("a"), expect=DROPPED),
    Probe(sender=client("b"), to=away.node_port("b"), expect=delivered_to("b1")),
    Probe(sender=pod("a2"), to=away.cluster_ip, expect=delivered_to("b1")),
    Probe(sender=pod("a2"), to=inward.cluster_ip, expect=DROPPED | REJECTED),
    Probe(sender=pod("b2"), to=inward.cluster_ip, expect=delivered_to("b1")),
    clauses=POD_CLAUSES
    | LOCAL_CLAUSES
    | FALLBACK
    | {
        "external-policy.cluster-ip-exempt",
        "external-policy.local.drop-without-local-endpoint",
        "internal-policy.local.same-node",
        "internal-policy.local.drop-without-local-endpoint",
        "internal-policy.local.only-terminating-elsewhere.either",
        "endpoints.terminating.used-when-none-ready-on-node",
    },
    features=TERMINATING
    | {Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY, Feature.INTERNAL_TRAFFIC_POLICY},
)

LIVE_ENTRY_OF_AN_ADDRESS_WINS = case(
    "terminating.live-entry-of-an-address-wins",
    "An address that one slice lists as terminating and another as ready is ready, in either order.",
    Apply(
        reused := service(
            "reused",
            endpoints=(
                draining("a1", in_slice=0),
                CaseEndpoint(on="a1", slice=1),
                CaseEndpoint(on="b1", slice=0),
                draining("b1", in_slice=1),
                CaseEndpoint(on="a3"),
            ),
        )
    ),
    Probe(sender=pod("a2"), to=reused.cluster_ip, expect=delivered_to("a1", "a3", "b1"), spread=True),
    Probe(sender=pod("b2"), to=reused.cluster_ip, expect=delivered_to("a1", "a3", "b1"), spread=True),
    clauses=POD_CLAUSES | SPREAD | {"slices.merged", "slices.address-reused.live-endpoint-wins"},
    features=TERMINATING,
    regressions={"R101", "R102"},
)

LIFE_OF_AN_ENDPOINT = case(
    "readiness.life-of-an-endpoint",
    "Unready, ready, terminating, gone: new connections follow each time.",
    Apply(service("web", endpoints=(unready("a1"),)), NEIGHBOUR),
    Probe(sender=pod("a2"), to=web.cluster_ip, expect=REJECTED),
    Probe(sender=pod("a2"), to=NEIGHBOUR.cluster_ip, expect=delivered_to("b3")),
    Apply(service("web", "a1")),
    Probe(sender=pod("a2"), to=web.cluster_ip, expect=delivered_to("a1"), clauses=(change.READINESS,)),
    Apply(service("web", endpoints=(draining("a1"),))),
    Probe(sender=pod("a2"), to=web.cluster_ip, expect=delivered_to("a1"), clauses=(change.READINESS,)),
    Apply(service("web", endpoints=(terminated("a1"),))),
    Probe(sender=pod("a2"), to=web.cluster_ip, expect=REJECTED, clauses=(change.READINESS,)),
    clauses=POD_CLAUSES
    | FALLBACK
    | {"endpoints.none.rejected", "endpoints.not-serving.never-used", "change.readiness.followed"},
    features=TERMINATING,
    regressions={"R103"},
)

REPLACEMENT_TAKES_OVER = case(
    "terminating.replacement-takes-over",
    "Connections to a terminating endpoint go on, even when it serves no more; new ones go to its heir.",
    Apply(alone := service("web", "a1")),
    Open(flow="old", sender=pod("b2"), to=alone.cluster_ip, expect=delivered_to("a1")),
    Apply(service("web", endpoints=(draining("a1"), CaseEndpoint(on="b1")))),
    Probe(
        sender=pod("b2"),
        to=alone.cluster_ip,
        expect=delivered_to("b1"),
        count=12,
        clauses=(change.READINESS,),
    ),
    Send(flow="old", expect=SAME_ENDPOINT, clauses=("established.survives-termination-of-its-endpoint",)),
    Apply(service("web", endpoints=(terminated("a1"), CaseEndpoint(on="b1")))),
    Probe(
        sender=pod("b2"),
        to=alone.cluster_ip,
        expect=delivered_to("b1"),
        count=12,
        clauses=(change.READINESS,),
    ),
    Send(flow="old", expect=SAME_ENDPOINT, clauses=("established.survives-termination-of-its-endpoint",)),
    clauses=POD_CLAUSES
    | {
        "endpoints.ready-only",
        "endpoints.terminating.not-used-beside-ready",
        "change.readiness.followed",
        "established.survives-termination-of-its-endpoint",
    },
    features=TERMINATING,
    regressions={"R082", "R088"},
)

# ------------------------------------------------------------------- rolling updates

OLD, NEW = ("a1", "b1"), ("a2", "b2")
LEAVING = tuple(CaseEndpoint(on=on, ready=False, serving=True, terminating=True) for on in OLD)

ROLLED = service("web", *OLD, type=Type.LOAD_BALANCER, vips=(Vip(),))
ROLLED_LOCAL = ROLLED.replace(external_policy=Policy.LOCAL)

NEVER_FAILS = ("change.rolling-update.no-failed-connection",)

ROLLED_FEATURES = {Feature.NODE_PORT, Feature.LOAD_BALANCER, Feature.TERMINATING_ENDPOINTS}

FROM_ALL = delivered_to(*OLD, *NEW, source=MASQUERADED)

ROLLING_UPDATE = case(
    "terminating.rolling-update",
    "While all pods are replaced, no connection of a client outside or inside fails.",
    Apply(ROLLED),
    ContinuousProbe(sender=client("a"), to=ROLLED.node_port("a"), expect=FROM_ALL, clauses=NEVER_FAILS),
    ContinuousProbe(sender=remote("b"), to=ROLLED.vip(), expect=FROM_ALL, clauses=NEVER_FAILS),
    ContinuousProbe(
        sender=pod("a3"), to=ROLLED.cluster_ip, expect=delivered_to(*OLD, *NEW), clauses=NEVER_FAILS
    ),
    Apply(ROLLED.replace(endpoints=pods(*OLD, *NEW))),
    Probe(sender=pod("a3"), to=ROLLED.cluster_ip, expect=delivered_to(*OLD, *NEW), spread=True),
    Apply(ROLLED.replace(endpoints=(*LEAVING, *pods(*NEW)))),
    Probe(sender=pod("a3"), to=ROLLED.cluster_ip, expect=delivered_to(*NEW), spread=True),
    Apply(ROLLED.replace(endpoints=pods(*NEW))),
    Probe(
        sender=client("a"),
        to=ROLLED.node_port("a"),
        expect=delivered_to(*NEW, source=MASQUERADED),
        spread=True,
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
    features=ROLLED_FEATURES,
    regressions={"R104"},
)

ROLLING_UPDATE_UNDER_LOCAL_POLICY = case(
    "terminating.rolling-update-under-local-policy",
    "The same under external policy Local, where each node's pod is replaced by another of that node.",
    Apply(ROLLED_LOCAL),
    ContinuousProbe(
        sender=client("a"),
        to=ROLLED_LOCAL.node_port("a"),
        expect=delivered_to("a1", "a2"),
        clauses=NEVER_FAILS,
    ),
    ContinuousProbe(
        sender=remote("b"), to=ROLLED_LOCAL.vip(), expect=delivered_to("b1", "b2"), clauses=NEVER_FAILS
    ),
    Apply(ROLLED_LOCAL.replace(endpoints=pods(*OLD, *NEW))),
    Probe(sender=client("a"), to=ROLLED_LOCAL.node_port("a"), expect=delivered_to("a1", "a2"), spread=True),
    Apply(ROLLED_LOCAL.replace(endpoints=(*LEAVING, *pods(*NEW)))),
    Probe(sender=client("a"), to=ROLLED_LOCAL.node_port("a"), expect=delivered_to("a2"), count=8),
    Apply(ROLLED_LOCAL.replace(endpoints=pods(*NEW))),
    Probe(sender=remote("b"), to=ROLLED_LOCAL.vip(), expect=delivered_to("b2"), count=8),
    clauses=SPREAD
    | {
        "node-port.reaches-ready-endpoint",
        "load-balancer.reaches-ready-endpoint",
        "external-policy.local.local-endpoints-source-preserved",
        "endpoints.terminating.not-used-beside-ready",
        *NEVER_FAILS,
    },
    features=ROLLED_FEATURES | {Feature.EXTERNAL_TRAFFIC_POLICY},
    regressions={"R096"},
)

CASES: tuple[Case, ...] = (
    ONLY_READY_ONES,
    MISSING_CONDITIONS_MEAN_READY,
    READY_FLAG_IS_TRUSTED,
    NOBODY_USABLE_IS_REFUSED,
    TERMINATING_ONES_STEP_IN,
    TERMINATING_ONES_STEP_IN_OVER_UDP,
    TERMINATING_ONES_STOP_SERVING,
    TERMINATING_ONES_STAND_BACK,
    EACH_NODE_FALLS_BACK_BY_ITSELF,
    TERMINATING_ELSEWHERE_ONLY,
    LIVE_ENTRY_OF_AN_ADDRESS_WINS,
    LIFE_OF_AN_ENDPOINT,
    REPLACEMENT_TAKES_OVER,
    ROLLING_UPDATE,
    ROLLING_UPDATE_UNDER_LOCAL_POLICY,
)
