"""Cases of the topic external-policy where several features act together, and at extremes.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    DROPPED,
    Apply,
    Case,
    Feature,
    Policy,
    Port,
    Probe,
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
from kproxy.conformance.cases.combinations import (
    EVERY_IP,
    EXPOSED,
    EXTERNAL,
    KEPT,
    LOCAL,
    OPEN,
    PODS_EVERYWHERE,
    REWRITTEN,
    SEVERAL,
    UDP_SERVED,
    probe_each_address,
)
from kproxy.conformance.cases.common import EVERY_KIND, FROM_B1, UDP_PORT

SILENT = "external-policy.local.drop-without-local-endpoint"
HOST_EVERYWHERE = "external-policy.local.host-reaches-all-endpoints"
LOCAL_UDP = OPEN.replace(name="local", ports=UDP_PORT, external_policy=LOCAL)
AWAY_UDP = LOCAL_UDP.replace(name="away", endpoints=LOCAL_UDP.endpoints[1:])

LOCAL_DATAGRAMS = case(
    "external-policy.datagrams-at-every-address",
    "Policy Local binds datagrams at every kind of address, spares pods and the node, and is silent without an endpoint.",
    Apply(LOCAL_UDP, AWAY_UDP),
    *probe_each_address(client("a"), LOCAL_UDP, delivered_to("a1"), KEPT),
    *probe_each_address(remote("b"), LOCAL_UDP, delivered_to("b1"), KEPT),
    *probe_each_address(client("a"), AWAY_UDP, DROPPED, SILENT),
    *probe_each_address(pod("a2"), AWAY_UDP, delivered_to("b1"), PODS_EVERYWHERE),
    *probe_each_address(host("a"), AWAY_UDP, FROM_B1, HOST_EVERYWHERE),
    clauses=EVERY_KIND | {UDP_SERVED, KEPT, SILENT, PODS_EVERYWHERE, HOST_EVERYWHERE},
    features=EXPOSED | EXTERNAL,
)

SEVERAL_LOCAL = SEVERAL.replace(name="several-local", external_policy=LOCAL, endpoints=SEVERAL.endpoints[1:])

LOCAL_AT_SEVERAL = case(
    "external-policy.each-of-several-addresses",
    "Policy Local binds the second load balancer IP and the second external IP as it does the first.",
    Apply(SEVERAL_LOCAL),
    *probe_each_address(client("b"), SEVERAL_LOCAL, delivered_to("b1"), KEPT),
    *probe_each_address(client("a"), SEVERAL_LOCAL, DROPPED, SILENT),
    *probe_each_address(pod("a2"), SEVERAL_LOCAL, delivered_to("b1"), PODS_EVERYWHERE),
    clauses=EVERY_KIND | {KEPT, SILENT, PODS_EVERYWHERE, EVERY_IP},
    features=EXPOSED | EXTERNAL,
)

SITE = service("site", "b1", type=Type.LOAD_BALANCER, vips=(Vip(),), external_ips=1, external_policy=LOCAL)
MAIL = SITE.replace(name="mail", same_vip_as="site", ports=(Port(number=25),), external_policy=None)

SHARED_UNDER_TWO_POLICIES = case(
    "external-policy.services-that-share-addresses",
    "Of two Services with one load balancer IP and one external IP each has its own policy.",
    Apply(SITE, MAIL),
    *probe_each_address(client("a"), SITE, DROPPED, SILENT),
    *probe_each_address(client("b"), SITE, delivered_to("b1"), KEPT),
    *probe_each_address(client("a"), MAIL, FROM_B1),
    *probe_each_address(client("b"), MAIL, FROM_B1),
    clauses=EVERY_KIND | REWRITTEN | {KEPT, SILENT, "node-port.every-node.served"},
    features=EXPOSED | EXTERNAL,
)

# ------------------------------------------------------------------- endpoints that come and go often

FLURRY = service("web", type=Type.NODE_PORT, external_policy=Policy.LOCAL)

ENDPOINTS_IN_A_FLURRY = case(
    "external-policy.endpoints-in-a-flurry",
    "After many changes in little time a node that has an endpoint again serves it, and no node drops by an old state.",
    Apply(FLURRY.replace(endpoints=pods("a1", "b1"))),
    *(Apply(FLURRY.replace(endpoints=pods(*names))) for names in (("b1",), ("a1",), (), ("a2",), ("b1",))),
    Apply(last := FLURRY.replace(endpoints=pods("a2", "b2"))),
    Probe(sender=client("a"), to=last.node_port("a"), expect=delivered_to("a2")),
    Probe(sender=remote("b"), to=last.node_port("b"), expect=delivered_to("b2")),
    *(Apply(FLURRY.replace(endpoints=pods(*names))) for names in (("b2",), ("a2",), ("a1", "b1"), ("b1",))),
    Apply(FLURRY.replace(endpoints=pods("a1"))),
    Probe(sender=client("a"), to=last.node_port("a"), expect=delivered_to("a1")),
    clauses={"node-port.reaches-ready-endpoint", "external-policy.local.local-endpoints-source-preserved"},
    features={Feature.NODE_PORT, Feature.EXTERNAL_TRAFFIC_POLICY},
    regressions={"R031"},
)

CASES: tuple[Case, ...] = (
    LOCAL_DATAGRAMS,
    LOCAL_AT_SEVERAL,
    SHARED_UNDER_TWO_POLICIES,
    ENDPOINTS_IN_A_FLURRY,
)
