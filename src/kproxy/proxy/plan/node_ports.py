"""Addresses of this node that accept node ports (``nodePortAddresses``, ``localhostNodePorts``)."""

from __future__ import annotations

from ipaddress import IPv4Address

from kproxy.model.network import Address, Family, Network, family_of
from kproxy.proxy.plan.values import NodePorts, PlanSettings

_LOCALHOST = IPv4Address("127.0.0.1")


def node_ports(settings: PlanSettings) -> NodePorts:
    """Addresses of the settings' family that accept node ports now.

    Clauses ``node-port.localhost.disabled.untouched``, ``node-port.localhost.ipv6.untouched``.
    """
    cidrs = _restriction(settings)
    return NodePorts(
        addresses=None if cidrs is None else _inside(cidrs, settings),
        localhost=settings.localhost_node_ports
        and settings.family is Family.IPV4
        and (cidrs is None or any(_LOCALHOST in cidr for cidr in cidrs)),
    )


def _restriction(settings: PlanSettings) -> tuple[Network, ...] | None:
    """CIDRs that restrict node ports of the family, None for no restriction.

    Clauses ``node-port.addresses.family-not-listed.served``, ``node-port.addresses.zero-range.served``.
    """
    cidrs = [cidr for cidr in settings.node_port_cidrs or () if family_of(cidr) is settings.family]
    if not cidrs or any(cidr.prefixlen == 0 for cidr in cidrs):
        return None
    return tuple(cidrs)


def _inside(cidrs: tuple[Network, ...], settings: PlanSettings) -> tuple[Address, ...]:
    accepted = {a for a in settings.node_addresses if not a.is_loopback and any(a in cidr for cidr in cidrs)}
    return tuple(sorted(accepted, key=int))
