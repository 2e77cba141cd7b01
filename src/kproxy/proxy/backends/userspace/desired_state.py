"""All that one family's kernel should hold, as lines of our chains.

A plan that is the same object as before is compiled once: the lines of each service port are kept with it.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kproxy.proxy.backends.userspace import names, static_rules
from kproxy.proxy.backends.userspace.compile import Context, admissions, refusals, translations
from kproxy.proxy.backends.xtables.rules import TableName, specification

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproxy.proxy.backends.xtables.rules import ChainName, Destination
    from kproxy.proxy.plan import Plan, ServicePlan, ServicePortName


class Line(NamedTuple):
    """A line, its chain, and the destination of the frontend that it is for, if it is for one."""

    chain: ChainName
    text: str
    destination: Destination | None = None


@dataclass(frozen=True, slots=True)
class ServiceRules:
    """One service port's lines, and the plan that they were compiled from."""

    service: ServicePlan
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Lines of our chains, without ``-A CHAIN``, by table and chain; each chain is there, empty or not."""

    tables: Mapping[TableName, Mapping[ChainName, tuple[str, ...]]]
    context: Context = field(compare=False)
    service_rules: Mapping[ServicePortName, ServiceRules] = field(compare=False, repr=False)


def desired_state(
    plan: Plan, previous: DesiredState | None = None, *, keep_sources: bool = True
) -> DesiredState:
    """The desired state for a plan whose endpoints are sockets; shares what did not change with ``previous``."""
    context = Context(plan.family, plan.detector, plan.node_ports)
    known = previous.service_rules if previous is not None and previous.context == context else {}
    rules = {service.name: _service_rules(service, context, known) for service in plan.services}
    chains: dict[ChainName, list[str]] = {name: [] for own in names.OWN_CHAINS.values() for name in own}
    ports = sorted({check.port for check in plan.health_checks})
    chains[names.PORTALS_INPUT] += map(specification, static_rules.input_rules(ports))
    if keep_sources:
        for name, found in static_rules.source_rules().items():
            chains[name] += map(specification, found)
    for one in rules.values():
        for line in one.lines:
            chains[line.chain].append(line.text)
    for portals, node_ports in (
        (names.PORTALS_CONTAINER, names.NODE_PORT_CONTAINER),
        (names.PORTALS_HOST, names.NODE_PORT_HOST),
    ):
        chains[portals] += map(specification, static_rules.node_port_rules(context, node_ports))
    tables = {table: {name: tuple(chains[name]) for name in own} for table, own in names.OWN_CHAINS.items()}
    return DesiredState(tables, context, rules)


def _service_rules(
    service: ServicePlan, context: Context, known: Mapping[ServicePortName, ServiceRules]
) -> ServiceRules:
    before = known.get(service.name)
    if before is not None and before.service is service:
        return before
    found = (*translations(service, context), *refusals(service, context), *admissions(service))
    lines = (Line(one.chain, specification(one.rule), one.destination) for one in found)
    return ServiceRules(service, tuple(lines))
