"""Cases on what a load balancer learns of a node: by health check node ports, and by its proxy itself.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    SAME_ENDPOINT,
    Apply,
    Case,
    CaseEndpoint,
    CheckHealth,
    CheckProxy,
    Delete,
    EndpointCountLocation,
    Feature,
    Open,
    Policy,
    Port,
    Probe,
    ReleasePort,
    Send,
    SetTaints,
    StartNodeDeletion,
    TakePort,
    Type,
    Vip,
    Wait,
    case,
    client,
    delivered_to,
    host,
    pod,
    remote,
    service,
)
from kproxy.conformance.cases.common import FROM_B1, LOCAL_CLAUSES, LOCAL_ENDPOINTS_REPORTED
from kproxy.conformance.cases.profiles import BRIDGE_INTERFACE, FORWARD_DROP, LIBERAL, NODE_PORT_CIDR
from kproxy.model.network import Family

FEATURES = {Feature.HEALTH_CHECKS, Feature.LOAD_BALANCER, Feature.EXTERNAL_TRAFFIC_POLICY, Feature.NODE_PORT}
BOUND = "health-check.node-port-addresses.bind"

WEB = service("web", "a1", "a2", "b1", type=Type.LOAD_BALANCER, external_policy=Policy.LOCAL, vips=(Vip(),))
MOVED = WEB.replace(endpoints=(CaseEndpoint(on="b1"), CaseEndpoint(on="b2")))
WIDE = WEB.replace(external_policy=Policy.CLUSTER)

FOLLOWS_LOCAL_ENDPOINTS = case(
    "health-check.follows-local-endpoints",
    "Each node reports how many endpoints it has, and stops when the policy is Cluster.",
    Apply(WEB),
    CheckHealth(sender=client("a"), to=WEB.health_check("a"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)),
    CheckHealth(sender=remote("b"), to=WEB.health_check("b"), expect=1, clauses=(LOCAL_ENDPOINTS_REPORTED,)),
    CheckHealth(sender=host("a"), to=WEB.health_check("a"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=delivered_to("a1", "a2")),
    Apply(MOVED),
    CheckHealth(sender=client("a"), to=WEB.health_check("a"), expect=0, clauses=(LOCAL_ENDPOINTS_REPORTED,)),
    CheckHealth(sender=client("b"), to=WEB.health_check("b"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)),
    Apply(WIDE),
    CheckHealth(
        sender=client("b"), to=WEB.health_check("b"), expect=None, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    clauses=LOCAL_CLAUSES | {LOCAL_ENDPOINTS_REPORTED},
    features=FEATURES,
    regressions={"R037", "R041"},
)

ENDING = service(
    "ending",
    type=Type.LOAD_BALANCER,
    external_policy=Policy.LOCAL,
    vips=(Vip(),),
    endpoints=(CaseEndpoint(on="a1", ready=False, serving=True, terminating=True),),
)

TERMINATING_DO_NOT_COUNT = case(
    "health-check.terminating-endpoints-do-not-count",
    "A node whose last endpoint terminates serves what comes, and its health check fails, so that the load "
    "balancer sends no more.",
    Apply(ENDING, beside := WEB.replace(name="beside")),
    CheckHealth(
        sender=client("a"), to=ENDING.health_check("a"), expect=0, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    CheckHealth(
        sender=client("a"), to=beside.health_check("a"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    Probe(sender=client("a"), to=ENDING.node_port("a"), expect=delivered_to("a1")),
    Delete(beside),
    CheckHealth(
        sender=client("a"), to=beside.health_check("a"), expect=None, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    clauses={
        "node-port.reaches-ready-endpoint",
        "external-policy.local.local-endpoints-source-preserved",
        "endpoints.terminating.used-when-none-ready-on-node",
        LOCAL_ENDPOINTS_REPORTED,
    },
    features=FEATURES | {Feature.TERMINATING_ENDPOINTS},
)

READY = "health-check.ready-flag-trusted"

PUBLISHED = ENDING.replace(
    name="published",
    endpoints=(CaseEndpoint(on="a1", ready=True, serving=False, terminating=True), CaseEndpoint(on="b1")),
)
UNPUBLISHED = PUBLISHED.replace(
    endpoints=(CaseEndpoint(on="a1", ready=False, serving=False, terminating=True), CaseEndpoint(on="b1"))
)

READY_WHILE_TERMINATING_COUNTS = case(
    "health-check.ready-while-terminating-counts",
    "An endpoint that terminates counts for load balancers while it is marked ready, and no longer.",
    Apply(PUBLISHED),
    CheckHealth(sender=client("a"), to=PUBLISHED.health_check("a"), expect=1, clauses=(READY,)),
    Probe(sender=client("a"), to=PUBLISHED.node_port("a"), expect=delivered_to("a1")),
    Apply(UNPUBLISHED),
    CheckHealth(
        sender=client("a"), to=PUBLISHED.health_check("a"), expect=0, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    CheckHealth(
        sender=client("b"), to=PUBLISHED.health_check("b"), expect=1, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    clauses=LOCAL_CLAUSES | {"endpoints.ready-flag-trusted", LOCAL_ENDPOINTS_REPORTED, READY},
    features=FEATURES | {Feature.TERMINATING_ENDPOINTS},
)

ANY_PORT = "health-check.any-port.counted"
RENAMED = WEB.replace(name="renamed", ports=(Port(name="b"),), slice_ports=(Port(name="a"),))

ANY_PORT_COUNTS = case(
    "health-check.any-port-counts",
    "While a Service's port has another name than those of its slices, load balancers still find its nodes.",
    Apply(RENAMED, WEB),
    CheckHealth(sender=client("a"), to=RENAMED.health_check("a"), expect=2, clauses=(ANY_PORT,)),
    CheckHealth(sender=client("b"), to=RENAMED.health_check("b"), expect=1, clauses=(ANY_PORT,)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=delivered_to("a1", "a2")),
    clauses=LOCAL_CLAUSES | {ANY_PORT},
    features=FEATURES,
)

TRIED_AGAIN = "health-check.port-in-use.tried-again"
LATER, BESIDE = WEB.replace(name="later"), WEB.replace(name="beside")

PORT_IN_USE_IS_TRIED_AGAIN = case(
    "health-check.port-in-use-is-tried-again",
    "A health check node port that another program has is opened when that one lets it go; the Service's node port, and the "
    "health check node ports of others, do not wait for it.",
    TakePort("a", LATER),
    Apply(LATER, BESIDE),
    CheckHealth(
        sender=client("a"), to=BESIDE.health_check("a"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    CheckHealth(
        sender=client("b"), to=LATER.health_check("b"), expect=1, clauses=(LOCAL_ENDPOINTS_REPORTED,)
    ),
    Probe(sender=client("a"), to=LATER.node_port("a"), expect=delivered_to("a1", "a2")),
    ReleasePort("a", LATER),
    CheckHealth(sender=client("a"), to=LATER.health_check("a"), expect=2, clauses=(TRIED_AGAIN,)),
    clauses=LOCAL_CLAUSES | {LOCAL_ENDPOINTS_REPORTED, TRIED_AGAIN},
    features=FEATURES,
)

ON_SELECTED_ADDRESSES = case(
    "health-check.on-selected-addresses",
    "Where nodePortAddresses are set, a health check node port is on those and on no other.",
    Apply(WEB),
    CheckHealth(
        sender=client("a"), to=WEB.health_check("a"), expect=2, clauses=(BOUND, LOCAL_ENDPOINTS_REPORTED)
    ),
    CheckHealth(sender=client("a"), to=WEB.health_check("a", second=True), expect=None, clauses=(BOUND,)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=delivered_to("a1", "a2")),
    clauses=LOCAL_CLAUSES | {"node-port.addresses.inside-configured.served", LOCAL_ENDPOINTS_REPORTED, BOUND},
    features=FEATURES,
    regressions={"R039"},
    profile=NODE_PORT_CIDR,
)

BETWEEN_CLUSTER_IPS = case(
    "health-check.not-at-cluster-ips",
    "Cluster IPs that nodePortAddresses cover are no addresses of the node: no health check node port is there.",
    Apply(WEB),
    CheckHealth(sender=client("a"), to=WEB.health_check("a"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)),
    CheckHealth(sender=host("a"), to=WEB.health_check_at_cluster_ip, expect=None, clauses=(BOUND,)),
    CheckHealth(sender=pod("a3"), to=WEB.health_check_at_cluster_ip, expect=None, clauses=(BOUND,)),
    Probe(sender=host("a"), to=WEB.cluster_ip, expect=delivered_to("a1", "a2", "b1", source=MASQUERADED)),
    Probe(sender=client("a"), to=WEB.node_port("a"), expect=delivered_to("a1", "a2")),
    Apply(MOVED),
    CheckHealth(sender=client("b"), to=WEB.health_check("b"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)),
    CheckHealth(sender=host("b"), to=WEB.health_check_at_cluster_ip, expect=None, clauses=(BOUND,)),
    clauses=LOCAL_CLAUSES
    | {
        "cluster-ip.reaches-ready-endpoint",
        "masquerade.cluster-ip.host-rewritten",
        "detect-local.bridge-interface",
        "external-policy.cluster-ip-exempt",
        "node-port.addresses.inside-configured.served",
        LOCAL_ENDPOINTS_REPORTED,
        BOUND,
    },
    features=FEATURES,
    profile=BRIDGE_INTERFACE,
)

COUNTED = "health-check.number.told"
WEIGHT = "health-check.weight.told"
ANY_PATH = "health-check.any-path.answered"

TWO_PORTS = WEB.replace(ports=(Port(name="a", number=80), Port(name="b", number=81)))
TWO_PORTS_MOVED = TWO_PORTS.replace(endpoints=MOVED.endpoints)

FOR_LOAD_BALANCERS = case(
    "health-check.number-weight-and-path",
    "The number of endpoints is reported, each once for all ports, in a header as well, and for every path.",
    Apply(TWO_PORTS),
    CheckHealth(
        sender=client("a"),
        to=TWO_PORTS.health_check("a"),
        expect=2,
        count_in=EndpointCountLocation.IN_BODY,
        clauses=(COUNTED,),
    ),
    CheckHealth(
        sender=client("b"),
        to=TWO_PORTS.health_check("b"),
        expect=1,
        count_in=EndpointCountLocation.IN_BODY,
        clauses=(COUNTED,),
    ),
    CheckHealth(
        sender=client("a"),
        to=TWO_PORTS.health_check("a"),
        expect=2,
        count_in=EndpointCountLocation.IN_HEADER,
        clauses=(WEIGHT,),
    ),
    CheckHealth(
        sender=client("b"),
        to=TWO_PORTS.health_check("b"),
        expect=1,
        count_in=EndpointCountLocation.IN_HEADER,
        clauses=(WEIGHT,),
    ),
    CheckHealth(
        sender=client("a"), to=TWO_PORTS.health_check("a"), expect=2, path="/no/such", clauses=(ANY_PATH,)
    ),
    Apply(TWO_PORTS_MOVED),
    CheckHealth(
        sender=client("a"),
        to=TWO_PORTS.health_check("a"),
        expect=0,
        count_in=EndpointCountLocation.IN_BODY,
        clauses=(COUNTED,),
    ),
    CheckHealth(
        sender=client("a"),
        to=TWO_PORTS.health_check("a"),
        expect=0,
        count_in=EndpointCountLocation.IN_HEADER,
        clauses=(WEIGHT,),
    ),
    CheckHealth(sender=client("a"), to=TWO_PORTS.health_check("a"), expect=0, path="/", clauses=(ANY_PATH,)),
    Probe(sender=client("b"), to=TWO_PORTS.node_port("b").at("b"), expect=delivered_to("b1", "b2")),
    clauses=LOCAL_CLAUSES | {COUNTED, WEIGHT, ANY_PATH},
    features=FEATURES,
)

LET_IN = "health-check.input-policy-drop.passes"
ELSEWHERE = WEB.replace(name="elsewhere", endpoints=(CaseEndpoint(on="b1"),))

LETS_HEALTH_CHECKS_IN = case(
    "health-check.input-is-dropped",
    "A node that lets nothing in by itself answers health checks: also where its endpoint ends, or it has none.",
    Apply(WEB, ENDING, ELSEWHERE),
    CheckHealth(sender=host("a"), to=WEB.health_check("a"), expect=2, clauses=(LOCAL_ENDPOINTS_REPORTED,)),
    CheckHealth(sender=client("a"), to=WEB.health_check("a"), expect=2, clauses=(LET_IN,)),
    CheckHealth(sender=remote("b"), to=WEB.health_check("b"), expect=1, clauses=(LET_IN,)),
    CheckHealth(sender=pod("a3"), to=ENDING.health_check("a"), expect=0, clauses=(LET_IN,)),
    CheckHealth(sender=client("a"), to=ELSEWHERE.health_check("a"), expect=0, clauses=(LET_IN,)),
    Probe(sender=host("a"), to=WEB.cluster_ip, expect=delivered_to("a1", "a2", "b1", source=MASQUERADED)),
    clauses={
        "cluster-ip.reaches-ready-endpoint",
        "masquerade.cluster-ip.host-rewritten",
        "external-policy.cluster-ip-exempt",
        LOCAL_ENDPOINTS_REPORTED,
        LET_IN,
    },
    features=FEATURES | {Feature.INPUT_POLICY},
    profile=FORWARD_DROP,
)

# ------------------------------------------------------------------- the proxy's own

LEAVING = "ToBeDeletedByClusterAutoscaler"
HEALTHY = "proxy-health.told"
LEAVING_REPORTED = "proxy-health.leaving-node.told"
SERVES_ON = "proxy-health.leaving-node.serves"
UNAFFECTED = "health-check.leaving-node.unaffected"
EVERYWHERE = WEB.replace(name="everywhere", external_policy=Policy.CLUSTER)
ANYWHERE = delivered_to("a1", "a2", "b1", source=MASQUERADED)


def _check_proxy(node: str, path: str, status: int, clause: str) -> CheckProxy:
    return CheckProxy(sender=client(node), node=node, path=path, expect=status, clauses=(clause,))


A_NODE_LEAVES = case(
    "proxy-health.of-a-node-that-is-about-to-leave",
    "Load balancers learn of it before the node is gone, and what they still send is served.",
    Apply(WEB, EVERYWHERE),
    _check_proxy("a", "/healthz", 200, HEALTHY),
    _check_proxy("a", "/livez", 200, HEALTHY),
    Open(flow="old", sender=client("a"), to=EVERYWHERE.node_port("a"), expect=ANYWHERE),
    SetTaints("a", (LEAVING,)),
    _check_proxy("a", "/healthz", 503, LEAVING_REPORTED),
    _check_proxy("a", "/livez", 200, LEAVING_REPORTED),
    _check_proxy("b", "/healthz", 200, LEAVING_REPORTED),
    Send(flow="old", expect=SAME_ENDPOINT, clauses=(SERVES_ON,)),
    Probe(sender=client("a"), to=EVERYWHERE.node_port("a"), expect=ANYWHERE, clauses=(SERVES_ON,)),
    CheckHealth(sender=client("a"), to=WEB.health_check("a"), expect=2, clauses=(UNAFFECTED,)),
    SetTaints("a", ("node.example/other",)),
    _check_proxy("a", "/healthz", 200, LEAVING_REPORTED),
    SetTaints("a", ()),
    _check_proxy("a", "/healthz", 200, LEAVING_REPORTED),
    clauses={HEALTHY, LEAVING_REPORTED, SERVES_ON, UNAFFECTED}
    | {
        "node-port.reaches-ready-endpoint",
        "masquerade.external-policy-cluster.rewritten",
    },
    features=FEATURES | {Feature.PROXY_HEALTH},
    families=(Family.IPV4,),
)

A_NODE_IS_DELETED = case(
    "proxy-health.of-a-node-that-is-being-deleted",
    "Load balancers learn of a Node object's deletion as they do of the taint, and that the proxy itself is well.",
    Apply(beyond := service("beyond", "b1", type=Type.NODE_PORT)),
    _check_proxy("b", "/healthz", 200, HEALTHY),
    StartNodeDeletion("b"),
    _check_proxy("b", "/healthz", 503, LEAVING_REPORTED),
    _check_proxy("b", "/livez", 200, LEAVING_REPORTED),
    _check_proxy("a", "/healthz", 200, LEAVING_REPORTED),
    Probe(sender=client("b"), to=beyond.node_port("b"), expect=FROM_B1, clauses=(SERVES_ON,)),
    clauses={HEALTHY, LEAVING_REPORTED, SERVES_ON}
    | {"node-port.reaches-ready-endpoint", "masquerade.external-policy-cluster.rewritten"},
    features={Feature.PROXY_HEALTH, Feature.NODE_PORT},
    profile=LIBERAL,
    families=(Family.IPV4,),
)

A_QUIET_CLUSTER = case(
    "proxy-health.of-a-quiet-cluster",
    "A proxy that has nothing to do for longer than it may lag behind is as well as before.",
    Apply(quiet := service("quiet", "b1")),
    _check_proxy("a", "/healthz", 200, HEALTHY),
    Wait(75),
    Probe(sender=pod("a2"), to=quiet.cluster_ip, expect=delivered_to("b1")),
    _check_proxy("a", "/healthz", 200, HEALTHY),
    _check_proxy("a", "/livez", 200, HEALTHY),
    clauses={HEALTHY, "cluster-ip.reaches-ready-endpoint", "masquerade.cluster-ip.pod-source-preserved"},
    features={Feature.PROXY_HEALTH},
    families=(Family.IPV4,),
    slow=True,
)

CASES: tuple[Case, ...] = (
    FOLLOWS_LOCAL_ENDPOINTS,
    TERMINATING_DO_NOT_COUNT,
    READY_WHILE_TERMINATING_COUNTS,
    ANY_PORT_COUNTS,
    PORT_IN_USE_IS_TRIED_AGAIN,
    ON_SELECTED_ADDRESSES,
    BETWEEN_CLUSTER_IPS,
    FOR_LOAD_BALANCERS,
    A_NODE_LEAVES,
    A_NODE_IS_DELETED,
    LETS_HEALTH_CHECKS_IN,
    A_QUIET_CLUSTER,
)
