"""All that one family's kernel should hold, as a value that shares what did not change with its predecessor.

A `DesiredState` keeps of every service port only its `ServiceRules`: the plan it came from, and its lines in the
shared chains as text.  The text of its own chains, by far the most, is rendered from the plan when it is
needed; that is pure, so it can be repeated.  10,000 services of 5 endpoints cost some 7 MB.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kproxy.linux.netfilter.rules import Chain
from kproxy.proxy.backends.iptables import names, static_rules
from kproxy.proxy.backends.iptables.compile import (
    Context,
    SharedRule,
    dispatch,
    localhost_node_ports,
    own_chains,
)
from kproxy.proxy.backends.iptables.names import SharedChain
from kproxy.proxy.backends.iptables.rules import Ruleset
from kproxy.proxy.backends.xtables.rules import PacketCounter, TableName, render, specification

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        self._dispatch: tuple[tuple[SharedChain, str], ...] | None = None

    @property
    def dispatch(self) -> tuple[tuple[SharedChain, str], ...]:
        """Its lines in the shared chains, without ``-A CHAIN``; cached, since each change compares them."""
        if self._dispatch is None:
            found = dispatch(self.service, self.context)
            self._dispatch = tuple((each.chain, specification(each.rule)) for each in found)
        return self._dispatch

    def chains(self) -> tuple[Chain, ...]:
        """Its own chains in the nat table."""
        return own_chains(self.service, self.context)

    def own_lines(self) -> dict[ChainName, tuple[str, ...]]:
        """Its own chains as ``-A`` lines."""
        return {chain.name: tuple(render(chain)) for chain in self.chains()}


@dataclass(frozen=True, slots=True, eq=False)
class DesiredState:
    """All rules that the kernel should hold for one plan."""

    context: Context
    options: Options
    service_rules: Mapping[ServicePortName, ServiceRules]

    def shared_lines(self, shared: SharedChain) -> list[str]:
        """A shared chain's lines in order, without ``-A CHAIN``."""
        lines = [line for f in self.service_rules.values() for where, line in f.dispatch if where is shared]
        if shared is SharedChain.NAT_SERVICES:
            lines += self.node_port_lines
        return lines

    @property
    def node_port_lines(self) -> tuple[str, ...]:
        """The last lines of the nat table's KUBE-SERVICES."""
        return tuple(map(specification, static_rules.node_port_rules(self.context)))


def desired_state(plan: Plan, options: Options, previous: DesiredState | None = None) -> DesiredState:
    """The desired state for a plan; shares the `ServiceRules` of ``previous`` that did not change."""
    context = Context(plan.family, plan.detector, plan.node_ports, not _is_large(plan))
    if PacketCounter.LOCALHOST_ACCEPTED in options.counters:
        context = replace(context, count_localhost=localhost_node_ports(context))
    if previous is not None and previous.context == context:
        context, old = previous.context, previous.service_rules
    else:
        old = {}
    fragments = {}
    for service in plan.services:
        fragment = old.get(service.name)
        if fragment is None or fragment.service is not service:
            fragment = ServiceRules(service, context)
        fragments[service.name] = fragment
    return DesiredState(context, options, fragments)


def build_ruleset(desired: DesiredState) -> Ruleset:
    """The whole as typed rules: to compare with what the text of a diff leads to."""
    tables = {
        table: {c.name: c for c in found}
        for table, found in static_rules.static_chains(desired.options).items()
    }
    for fragment in desired.service_rules.values():
        tables[TableName.NAT].update({chain.name: chain for chain in fragment.chains()})
    rules: dict[SharedChain, list[SharedRule]] = {shared: [] for shared in SharedChain}
    for fragment in desired.service_rules.values():
        for found in dispatch(fragment.service, fragment.context):
            rules[found.chain].append(found)
    for shared, members in rules.items():
        last = static_rules.node_port_rules(desired.context) if shared is SharedChain.NAT_SERVICES else ()
        tables[shared.table][shared.chain] = Chain(shared.chain, (*(m.rule for m in members), *last))
    guard = static_rules.martian_guard(desired.context)
    if guard is not None:
        tables[TableName.FILTER][guard.name] = guard
    for hook in static_rules.hook_rules(localhost=guard is not None):
        tables[hook.table][hook.hook.name] = Chain(hook.hook.name, hook.rules)
    for table, known in tables.items():
        known.update({name: Chain(name) for name in names.OWN_CHAINS[table] if name not in known})
    return Ruleset(desired.context.family, tables)


def _is_large(plan: Plan) -> bool:
    count = 0
    for service in plan.services:
        count += max((len(frontend.pool.endpoints) for frontend in service.frontends), default=0)
        if count > LARGE_CLUSTER_ENDPOINTS:
            return True
    return False
