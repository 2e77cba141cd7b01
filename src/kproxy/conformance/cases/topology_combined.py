"""Cases of the topic topology where several features act together, and at extremes.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    Apply,
    Backend,
    Case,
    Feature,
    case,
    client,
    delivered_to,
    host,
)
from kproxy.conformance.cases.combinations import (
    BOTH_PROTOCOLS,
    EXPOSED,
    OPEN,
    REWRITTEN,
    UDP_SERVED,
    probe_each_address,
)
from kproxy.conformance.cases.common import EVERY_KIND, FROM_B1

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
    *probe_each_address(client("a"), PERSONAL, FROM_B1, SAME_NODE, HINTED, port="a"),
    *probe_each_address(
        client("b"), PERSONAL, delivered_to("a1", source=MASQUERADED), SAME_NODE, HINTED, port="b"
    ),
    *probe_each_address(host("a"), PERSONAL, FROM_B1, SAME_NODE, HINTED, port="b"),
    clauses=EVERY_KIND | REWRITTEN | {UDP_SERVED, SAME_NODE, HINTED, "node-port.every-node.served"},
    features=EXPOSED | {Feature.TOPOLOGY_HINTS},
)

CASES: tuple[Case, ...] = (NODE_HINTS_OUTSIDE,)
