"""All that one family's kernel should hold, as a value that shares what did not change with its predecessor.

A `DesiredState` keeps of every service port only its `ServiceRules`: the plan it came from, and its lines in the
shared chains as text, which are also in the trees.  The text of its own chains, by far the most, is rendered from the plan when it
is needed; that is pure, so it can be repeated.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kproxy.linux.netfilter.rules import Chain
from kproxy.proxy.backends.iptables import names, static_rules
from kproxy.proxy.backends.iptables.compile import (
    Context,
    dispatch,
    localhost_node_ports,
    own_chains,
)
from kproxy.proxy.backends.iptables.dispatch import (
    Placed,
    SharedTrees,
    empty_trees,
    placed,
)
from kproxy.proxy.backends.iptables.dispatch_tree import SHAPE
from kproxy.proxy.backends.iptables.names import SharedChain
from kproxy.proxy.backends.xtables.rules import PacketCounter, render, specification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kproxy.linux.netfilter.rules import Rule
    from kproxy.proxy.backends.iptables.dispatch_tree import Item, Shape
    from kproxy.proxy.backends.iptables.static_rules import Options
    from kproxy.proxy.backends.xtables.rules import ChainName
    from kproxy.proxy.plan import Plan, ServicePlan, ServicePortName

LARGE_CLUSTER_ENDPOINTS = 1000
"""Above it the rules of single endpoints carry no comments (clause ``balancing.any-number-of-endpoints``)."""


class ServiceRules:
    """One service port's part.  Same plan and context: the same object, as `desired_state` makes it."""

    __slots__ = ("_dispatch", "context", "service")

    def __init__(self, service: ServicePlan, context: Context) -> None:
        """Store the inputs; text is rendered on demand, so that the tool parses the first lines while others are rendered."""
        self.service, self.context = service, context
        self._dispatch: tuple[Placed[str], ...] | None = None

    @property
    def dispatch(self) -> tuple[Placed[str], ...]:
        """Its lines in the shared chains, without ``-A CHAIN``; cached, since each change compares them."""
        if self._dispatch is None:
            self._dispatch = self.placed(specification)
        return self._dispatch

    def placed(self, item: Callable[[Rule], Item]) -> tuple[Placed[Item], ...]:
        """Its rules in the shared chains, each made an item of a tree."""
        owner = names.identity(self.service)
        return tuple(
            placed(rule, owner, number, item(rule.rule))
            for number, rule in enumerate(dispatch(self.service, self.context))
        )

    def chains(self) -> tuple[Chain, ...]:
        """Its own chains in the nat table."""
        return own_chains(self.service, self.context)

    def own_lines(self) -> dict[ChainName, tuple[str, ...]]:
        """Its own chains as ``-A`` lines."""
        return {chain.name: tuple(render(chain)) for chain in self.chains()}


Trees = Mapping[SharedChain, SharedTrees[str]]
Chains = Mapping["ChainName", tuple[str, ...]]
"""Lines without ``-A CHAIN`` by chain; a chain comes after those that it leads to."""


class DesiredState:
    """All rules that the kernel should hold for one plan; made by `desired_state`."""

    __slots__ = ("_base", "_chains", "_trees", "context", "options", "service_rules", "shape")

    def __init__(
        self,
        context: Context,
        options: Options,
        service_rules: Mapping[ServicePortName, ServiceRules],
        shape: Shape,
        base: DesiredState | None,
    ) -> None:
        """``base``: an earlier state of the same context and shape, whose trees are edited rather than made anew."""
        self.context, self.options, self.service_rules, self.shape = context, options, service_rules, shape
        self._base = base if base is not None and base.has_trees else None
        self._trees: Trees | None = None
        self._chains: dict[SharedChain, Chains] = {}

    @property
    def has_trees(self) -> bool:
        """True if its trees have been made."""
        return self._trees is not None

    @property
    def trees(self) -> Trees:
        """The rules in shared chains; made when they are first needed."""
        if self._trees is None:
            base, self._base = self._base, None
            self._trees = self._edited_trees(base) if base else self._new_trees()
        return self._trees

    def chains(self, shared: SharedChain) -> Chains:
        """A shared chain with the chains of its trees."""
        if shared not in self._chains:
            self._chains[shared] = self.write(shared, self.trees[shared])
        return self._chains[shared]

    def write(self, shared: SharedChain, trees: SharedTrees[str]) -> dict[ChainName, tuple[str, ...]]:
        """These trees in the place of the shared chain's own."""
        last = self.node_port_lines if shared is SharedChain.NAT_SERVICES else ()
        return trees.chains(shared, specification, last)

    @property
    def node_port_lines(self) -> tuple[str, ...]:
        """The last lines of the nat table's KUBE-SERVICES."""
        return tuple(map(specification, static_rules.node_port_rules(self.context)))

    def _new_trees(self) -> Trees:
        empty: SharedTrees[str] = empty_trees(self.context.family, self.shape)
        return edited_trees(
            dict.fromkeys(SharedChain, empty),
            (),
            [p for f in self.service_rules.values() for p in f.dispatch],
        )

    def _edited_trees(self, base: DesiredState) -> Trees:
        trees = edited_trees(base.trees, *dispatch_difference(changed(base, self)))
        unchanged = (shared for shared, own in trees.items() if own is base.trees[shared])
        self._chains = {shared: base.chains(shared) for shared in unchanged}
        return trees


Pair = tuple["ServiceRules | None", "ServiceRules | None"]
"""The rules of a service port before and after a change."""


def changed(before: DesiredState, after: DesiredState) -> list[Pair]:
    """Differences between two states; service ports that are gone come last."""
    old, new = before.service_rules, after.service_rules
    pairs: list[Pair] = [(old.get(name), one) for name, one in new.items() if old.get(name) is not one]
    return pairs + [(one, None) for name, one in old.items() if name not in new]


def dispatch_difference(pairs: Iterable[Pair]) -> tuple[list[Placed[str]], list[Placed[str]]]:
    """Rules in shared chains that are no longer wanted, and those that are new."""
    removed: list[Placed[str]] = []
    added: list[Placed[str]] = []
    for before, after in pairs:
        old, new = (each.dispatch if each else () for each in (before, after))
        if old != new:
            removed += [one for one in old if one not in new]
            added += [one for one in new if one not in old]
    return removed, added


def edited_trees(
    trees: Mapping[SharedChain, SharedTrees[Item]],
    removed: Iterable[Placed[Item]],
    added: Iterable[Placed[Item]],
) -> dict[SharedChain, SharedTrees[Item]]:
    """Trees without some rules and with others."""
    gone: dict[SharedChain, list[Placed[Item]]] = {shared: [] for shared in SharedChain}
    come: dict[SharedChain, list[Placed[Item]]] = {shared: [] for shared in SharedChain}
    for one in removed:
        gone[one.shared].append(one)
    for one in added:
        come[one.shared].append(one)
    return {shared: own.edited(gone[shared], come[shared]) for shared, own in trees.items()}


def desired_state(
    plan: Plan, options: Options, previous: DesiredState | None = None, shape: Shape | None = None
) -> DesiredState:
    """The desired state for a plan; shares the `ServiceRules` of ``previous`` that did not change, and most of its trees.

    ``shape``: of the trees, by default `SHAPE`.
    """
    shape = shape or SHAPE
    context = Context(plan.family, plan.detector, plan.node_ports, not _is_large(plan))
    if PacketCounter.LOCALHOST_ACCEPTED in options.counters:
        context = replace(context, count_localhost=localhost_node_ports(context))
    if previous is not None and previous.context == context:
        context, old = previous.context, previous.service_rules
        base = previous if previous.shape == shape else None
    else:
        old, base = {}, None
    service_rules = {}
    for service in plan.services:
        rules = old.get(service.name)
        if rules is None or rules.service is not service:
            rules = ServiceRules(service, context)
        service_rules[service.name] = rules
    return DesiredState(context, options, service_rules, shape, base)


def _is_large(plan: Plan) -> bool:
    count = 0
    for service in plan.services:
        count += max((len(frontend.pool.endpoints) for frontend in service.frontends), default=0)
        if count > LARGE_CLUSTER_ENDPOINTS:
            return True
    return False
