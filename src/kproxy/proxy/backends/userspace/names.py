"""Names of userspace mode's chains: kube-proxy's, until it gave up the mode in 1.26, and ours in mangle and filter.  Pure.

kube-proxy's: pkg/proxy/userspace/proxier.go of Kubernetes 1.25.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.proxy.backends.xtables.rules import TableName

if TYPE_CHECKING:
    from kproxy.proxy.backends.xtables.rules import ChainName

PORTALS_CONTAINER = "KUBE-PORTALS-CONTAINER"
"""Packets from pods and from outside to addresses of Services."""

PORTALS_HOST = "KUBE-PORTALS-HOST"
"""The node's own packets to addresses of Services."""

NODE_PORT_CONTAINER = "KUBE-NODEPORT-CONTAINER"
NODE_PORT_HOST = "KUBE-NODEPORT-HOST"

PORTALS_FILTER = "KUBE-PORTALS-FILTER"
"""Refusals and drops of packets that nat sends to no socket."""

PORTALS_INPUT = "KUBE-PORTALS-INPUT"
"""Admits translated packets to the relay's sockets, and nothing else to them."""

PORTALS_SOURCE = "KUBE-PORTALS-SOURCE"
"""Marks connections that the relay makes from clients' addresses."""

PORTALS_ANSWER = "KUBE-PORTALS-ANSWER"
"""Marks the answers of these, which are for this node whatever their destination."""

ANSWER_MARK, ANSWER_MASK, ANSWER_TABLE = 0x4C00_0000, 0xFF00_0000, 7500
"""Mark of these answers, and the routing table that leads them here.

Not ipvs mode's mark of shortcuts (0x4b): connections of the relay go on after a switch to that mode.
"""

OWN_CHAINS: dict[TableName, tuple[ChainName, ...]] = {
    TableName.MANGLE: (PORTALS_SOURCE, PORTALS_ANSWER),
    TableName.NAT: (PORTALS_CONTAINER, PORTALS_HOST, NODE_PORT_CONTAINER, NODE_PORT_HOST),
    TableName.FILTER: (PORTALS_FILTER, PORTALS_INPUT),
}


def is_ours(table: TableName, name: ChainName) -> bool:
    """True for a chain that only this mode makes."""
    return name in OWN_CHAINS.get(table, ())
