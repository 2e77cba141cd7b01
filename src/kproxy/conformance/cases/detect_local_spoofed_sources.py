"""Cases of the topic detect-local: senders whose address is not their own.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    MASQUERADED,
    Apply,
    Case,
    Feature,
    Probe,
    case,
    client,
    delivered_to,
    pod,
    service,
    spoofed,
)
from kproxy.conformance.cases.common import DATAGRAMS, POD_CLAUSES, UDP_PORT
from kproxy.conformance.cases.profiles import BRIDGE_INTERFACE, INTERFACE_PREFIX, NODE_CIDR

NAMES = service("names", "a3", "b1", ports=UDP_PORT)
ON_EITHER = delivered_to("a3", "b1")
FROM_EITHER = delivered_to("a3", "b1", source=MASQUERADED)

OUTSIDE_CLAUSES = {
    "cluster-ip.reaches-ready-endpoint",
    "cluster-ip.from-outside.served",
    "masquerade.cluster-ip.outside-rewritten",
}


POD_ADDRESS_FROM_OUTSIDE = case(
    "detect-local.pod-address-from-outside",
    "Where pods are detected by their range, a source of it is a pod, though it comes in from outside.",
    Apply(NAMES),
    Probe(sender=spoofed("b2", via="a"), to=NAMES.cluster_ip, expect=ON_EITHER),
    Probe(sender=spoofed("a2", via="a"), to=NAMES.cluster_ip, expect=ON_EITHER),
    Probe(sender=client("a"), to=NAMES.cluster_ip, expect=FROM_EITHER),
    clauses=POD_CLAUSES | OUTSIDE_CLAUSES | DATAGRAMS | {"detect-local.cluster-cidr"},
    features={Feature.DETECT_LOCAL},
)

POD_ADDRESS_FROM_ANOTHER_NODE = case(
    "detect-local.pod-address-of-another-node",
    "Where pods are detected by the node's own range, a source of another node's range is a client outside.",
    Apply(NAMES),
    Probe(sender=spoofed("b2", via="a"), to=NAMES.cluster_ip, expect=FROM_EITHER),
    Probe(sender=spoofed("a2", via="a"), to=NAMES.cluster_ip, expect=ON_EITHER),
    Probe(sender=pod("a1"), to=NAMES.cluster_ip, expect=ON_EITHER),
    clauses=POD_CLAUSES | OUTSIDE_CLAUSES | DATAGRAMS | {"detect-local.node-cidr"},
    features={Feature.DETECT_LOCAL},
    profile=NODE_CIDR,
)

POD_ADDRESS_BY_A_WRONG_INTERFACE = case(
    "detect-local.pod-address-by-no-pods-interface",
    "Where pods are detected by interfaces' names, a pod's address that comes in by the uplink is a "
    "client's outside.",
    Apply(NAMES),
    Probe(sender=spoofed("a2", via="a"), to=NAMES.cluster_ip, expect=FROM_EITHER),
    Probe(sender=pod("a2"), to=NAMES.cluster_ip, expect=ON_EITHER),
    clauses=POD_CLAUSES | OUTSIDE_CLAUSES | DATAGRAMS | {"detect-local.interface-name-prefix"},
    features={Feature.DETECT_LOCAL},
    profile=INTERFACE_PREFIX,
)

POD_ADDRESS_PAST_THE_BRIDGE = case(
    "detect-local.pod-address-past-the-bridge",
    "Where pods are detected by a bridge, a pod's address that does not come in by it is a client's outside.",
    Apply(NAMES),
    Probe(sender=spoofed("a1", via="a"), to=NAMES.cluster_ip, expect=FROM_EITHER),
    Probe(sender=pod("a1"), to=NAMES.cluster_ip, expect=ON_EITHER),
    clauses=POD_CLAUSES | OUTSIDE_CLAUSES | DATAGRAMS | {"detect-local.bridge-interface"},
    features={Feature.DETECT_LOCAL},
    profile=BRIDGE_INTERFACE,
)

CASES: tuple[Case, ...] = (
    POD_ADDRESS_FROM_OUTSIDE,
    POD_ADDRESS_FROM_ANOTHER_NODE,
    POD_ADDRESS_BY_A_WRONG_INTERFACE,
    POD_ADDRESS_PAST_THE_BRIDGE,
)
