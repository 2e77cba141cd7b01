"""Clauses and outcomes that cases of several topics share.

Only values.  A set of clauses is that of a kind of client at a kind of address.
"""

from __future__ import annotations

from kproxy.conformance.case import MASQUERADED, CaseEndpoint, Port, delivered_to
from kproxy.model.network import Protocol

POD_CLAUSES = {"cluster-ip.reaches-ready-endpoint", "masquerade.cluster-ip.pod-source-preserved"}
HOST_CLAUSES = {"cluster-ip.reaches-ready-endpoint", "masquerade.cluster-ip.host-rewritten"}
NODE_PORT_CLAUSES = {"node-port.reaches-ready-endpoint", "masquerade.external-policy-cluster.rewritten"}
LOCAL_CLAUSES = {
    "node-port.reaches-ready-endpoint",
    "external-policy.local.local-endpoints-source-preserved",
}
EVERY_KIND = {
    "node-port.reaches-ready-endpoint",
    "load-balancer.reaches-ready-endpoint",
    "external-ip.reaches-ready-endpoint",
}
SPREAD = {"balancing.every-endpoint-chosen"}
DATAGRAMS = {"protocol.udp.served"}
ANYWHERE = {"node-port.every-node.served"}
UNRELATED = "conntrack.unrelated.untouched"
MOVES = "conntrack.udp.moves-off-removed-endpoint"
STARTS = "conntrack.udp.served-after-first-endpoint"
NONE_LEFT = "conntrack.udp.not-to-dead-endpoint-when-none-left"
LOCAL_ENDPOINTS_REPORTED = "health-check.local-endpoints.told"

UDP_PORT = (Port(number=53, protocol=Protocol.UDP),)


def draining(on: str, in_slice: int = 0) -> CaseEndpoint:
    """An endpoint that terminates and still serves."""
    return CaseEndpoint(on=on, ready=False, serving=True, terminating=True, slice=in_slice)


def terminated(on: str) -> CaseEndpoint:
    """An endpoint that terminates and does not serve any more."""
    return CaseEndpoint(on=on, ready=False, serving=False, terminating=True)


ON_B1 = delivered_to("b1")
FROM_B1 = delivered_to("b1", source=MASQUERADED)
FROM_BOTH = delivered_to("a1", "b1", source=MASQUERADED)
