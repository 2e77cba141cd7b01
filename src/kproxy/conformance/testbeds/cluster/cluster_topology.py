"""Topology of a cluster that cases run in, as values. Pure.

Nodes and pods have the names of `kproxy.lab.topology`: ``a`` and ``b``, ``a1`` to ``b3``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kproxy.model.network import Address, Family, Network, family_of

Addresses = Mapping[Family, Address]

NODE_PORTS = (30000, 32767)
"""Default node port range of an API server, both ends included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """Node that cases use: its object's name, internal addresses, zone label.

    ``others``: further addresses of its interfaces, such as its pods' gateway, without loopback.
    """

    name: str
    addresses: Addresses
    zone: str = ""
    others: frozenset[Address] = frozenset()


def lowest_addresses(addresses: Collection[Address]) -> Mapping[str, Addresses]:
    """The two lowest addresses of each family, without link-local ones: the first for node ``a``, the second for ``b``.

    Raises ValueError when there are fewer in a family that has any.
    """
    found: dict[str, dict[Family, Address]] = {"a": {}, "b": {}}
    for family in Family:
        own = sorted(
            {one for one in addresses if family_of(one) is family and not one.is_link_local}, key=int
        )
        if own:
            for node, address in zip(found, own[:2], strict=True):
                found[node][family] = address
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTopology:
    """Two nodes, their pods, and the addresses and ports that Services may have.

    ``neighbour``: a third node's addresses, whose host is the client outside; None where there is none. ``outside``:
    the addresses of clients outside, ``client`` and ``remote``, by the node that their packets go through.
    ``namespace`` is that of all objects, ``load_balancer_class`` one that no controller acts for.
    ``taken_addresses``, ``taken_ports``: cluster IPs and node ports of existing Services.
    """

    namespace: str
    nodes: Mapping[str, ClusterNode]
    pods: Mapping[str, Addresses]
    service_cidrs: Mapping[Family, Network]
    node_ports: tuple[int, int] = NODE_PORTS
    taken_addresses: frozenset[Address] = frozenset()
    taken_ports: frozenset[int] = field(default_factory=frozenset)
    neighbour: Addresses | None = None
    outside: Mapping[str, Mapping[str, Addresses]] = field(default_factory=dict)
    load_balancer_class: str = "kproxy.example/none"

    @property
    def families(self) -> tuple[Family, ...]:
        """Families that Services may have here."""
        return tuple(family for family in Family if family in self.service_cidrs)
