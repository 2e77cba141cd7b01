"""Rules that lead packets to service ports, of all service ports together: the chains that they share, each a tree.

A shared chain has one tree of the rules that match an address and, behind it, one of those that match a port on any address
of the node; last in nat's KUBE-SERVICES comes the way to the node ports.  Between ``compile``, which gives the rules of one service
port, and ``desired_state``.  Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple

from kproxy.model.network import Family
from kproxy.proxy.backends.iptables.dispatch_tree import (
    IPV4_BITS,
    IPV6_BITS,
    NODE_PORT_BITS,
    Item,
    Tree,
    TreeRule,
    chains_of,
    key_space,
    tree_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kproxy.linux.netfilter.rules import Rule
    from kproxy.proxy.backends.iptables.dispatch_tree import Shape
    from kproxy.proxy.backends.iptables.names import SharedChain
    from kproxy.proxy.backends.iptables.rules import SharedRule
    from kproxy.proxy.backends.xtables.rules import ChainName

_ADDRESS_BITS = {Family.IPV4: IPV4_BITS, Family.IPV6: IPV6_BITS}


class Placed(NamedTuple, Generic[Item]):
    """A rule, the shared chain that it is for, and where in that chain's trees; ``addressed``: in that of addresses."""

    shared: SharedChain
    addressed: bool
    entry: TreeRule[Item]


def placed(rule: SharedRule, owner: str, number: int, item: Item) -> Placed[Item]:
    """One rule of a service port as ``item``; ``owner`` is the service port's identity, ``number`` counts its rules."""
    destination = rule.destination
    return Placed(
        rule.chain, destination.address is not None, TreeRule(tree_key(destination), owner, number, item)
    )


class SharedTrees(NamedTuple, Generic[Item]):
    """The trees of one shared chain."""

    addresses: Tree[Item]
    ports: Tree[Item]

    def edited(self, removed: Sequence[Placed[Item]], added: Sequence[Placed[Item]]) -> SharedTrees[Item]:
        """Without some rules and with others, all of this chain."""
        if not removed and not added:
            return self
        return SharedTrees(
            self.addresses.edited(
                [one.entry for one in removed if one.addressed], [one.entry for one in added if one.addressed]
            ),
            self.ports.edited(
                [one.entry for one in removed if not one.addressed],
                [one.entry for one in added if not one.addressed],
            ),
        )

    def chains(
        self, shared: SharedChain, item: Callable[[Rule], Item], last: Iterable[Item] = ()
    ) -> dict[ChainName, tuple[Item, ...]]:
        """The shared chain and those of its trees, each after those that it leads to; ``last``: what stands behind the trees."""
        addresses, below = chains_of(self.addresses, shared.group_prefix, item)
        ports, more = chains_of(self.ports, shared.group_prefix, item)
        return {**below, **more, shared.chain: (*addresses, *ports, *last)}


def empty_trees(family: Family, shape: Shape) -> SharedTrees[Item]:
    """Trees without rules."""
    addresses, ports = (key_space(bits, shape.bits) for bits in (_ADDRESS_BITS[family], NODE_PORT_BITS))
    return SharedTrees(Tree(addresses, shape), Tree(ports, shape))
