"""The matches of destinations that accept node ports, in the modes that compare addresses rule by rule.  Pure."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Address
from typing import TYPE_CHECKING

from kproxy.linux.netfilter.matches import DESTINATION_IS_LOCAL, destination_in
from kproxy.model.network import Family

if TYPE_CHECKING:
    from kproxy.linux.netfilter.rules import Match
    from kproxy.proxy.plan import NodePorts

LOOPBACK_IPV4 = IPv4Network("127.0.0.0/8")
LOOPBACK_IPV6 = IPv6Address("::1")


def node_port_destinations(family: Family, ports: NodePorts) -> tuple[tuple[Match, ...], ...]:
    """Alternative matches of a destination that accepts node ports; each makes a rule of its own.

    Loopback is one only in IPv4 and where the plan says so (``np.localhost.*``).

    Clauses ``node-port.number-on-service-address.not-served``, ``node-port.other-node.untouched``.
    """
    localhost = localhost_node_ports(family, ports)
    if ports.addresses is not None:
        loopback = (LOOPBACK_IPV4,) if localhost else ()
        return tuple((destination_in(address),) for address in (*ports.addresses, *loopback))
    if family is Family.IPV6:
        return ((destination_in(LOOPBACK_IPV6, negated=True), DESTINATION_IS_LOCAL),)
    if not localhost:
        return ((destination_in(LOOPBACK_IPV4, negated=True), DESTINATION_IS_LOCAL),)
    return ((DESTINATION_IS_LOCAL,),)


def localhost_node_ports(family: Family, ports: NodePorts) -> bool:
    """True if IPv4 loopback addresses accept node ports (``node-port.localhost.martian-dropped``)."""
    return family is Family.IPV4 and ports.localhost
