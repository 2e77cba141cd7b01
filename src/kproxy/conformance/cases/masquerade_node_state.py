"""Cases of the topic masquerade: marks, a firewall and addresses that a node has besides Services.

Only values; the vocabulary is `kproxy.conformance.case`.
"""

from __future__ import annotations

from kproxy.conformance.case import (
    Apply,
    Case,
    Feature,
    Probe,
    Type,
    case,
    host,
    service,
)
from kproxy.conformance.cases.common import DATAGRAMS, FROM_B1, HOST_CLAUSES, UDP_PORT
from kproxy.conformance.cases.profiles import LIBERAL

FOREIGN_BIT = 0x100000
DEFAULT_BIT = 0x4000
"""The bit of masqueradeBit 14, which is another proxy's where this one has another."""

WEB = service("web", "b1", type=Type.NODE_PORT)
NAMES = service("names", "b1", ports=UDP_PORT)
REWRITTEN = {"masquerade.external-policy-cluster.rewritten"}
NODE_PORT_CLAUSES = REWRITTEN | {"node-port.reaches-ready-endpoint"}
KEPT, CLEARED = "masquerade.foreign-mark-bits.kept", "masquerade.own-mark.cleared"

MARKS_OF_OTHERS = case(
    "masquerade.marks-of-others",
    "A mark that a process of the node sets is on its packets when they leave rewritten, and the proxy's own is not.",
    Apply(WEB, NAMES),
    Probe(sender=host("a"), to=WEB.cluster_ip, expect=FROM_B1, mark=FOREIGN_BIT, clauses=(KEPT, CLEARED)),
    Probe(sender=host("a"), to=NAMES.cluster_ip, expect=FROM_B1, mark=FOREIGN_BIT, clauses=(KEPT, CLEARED)),
    Probe(sender=host("a"), to=WEB.node_port("a"), expect=FROM_B1, mark=FOREIGN_BIT, clauses=(KEPT, CLEARED)),
    clauses=HOST_CLAUSES | NODE_PORT_CLAUSES | DATAGRAMS | {"node-port.every-node.served", KEPT, CLEARED},
    features={Feature.NODE_PORT},
    regressions={"R076", "R077"},
)

BIT_OF_ANOTHER_PROXY = case(
    "masquerade.bit-is-configured",
    "With another masqueradeBit, the usual one is a foreign bit like others.",
    Apply(WEB),
    Probe(
        sender=host("a"),
        to=WEB.cluster_ip,
        expect=FROM_B1,
        mark=FOREIGN_BIT | DEFAULT_BIT,
        clauses=(KEPT, CLEARED),
    ),
    clauses=HOST_CLAUSES | {KEPT, CLEARED},
    regressions={"R077"},
    profile=LIBERAL,
)

CASES: tuple[Case, ...] = (
    MARKS_OF_OTHERS,
    BIT_OF_ANOTHER_PROXY,
)
