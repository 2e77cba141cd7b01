"""All that one family's table should hold, as a value that shares what did not change with its predecessor.

A `DesiredState` keeps of every service port only its `ServiceRules`: the plan it came from, and the number of each endpoint.
Elements are derived from that when they are needed; that is pure, so it can be repeated.  Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import collapse_addresses
from itertools import compress
from operator import is_not

from kproxy.linux.netfilter.rules import Chain
from kproxy.model.network import Network
from kproxy.proxy.backends.nftables import compile, names, static_rules  # noqa: A004 - the stage's name
from kproxy.proxy.backends.nftables.compile import CountChain, NumberedEndpoints, SetElement, Shared
from kproxy.proxy.backends.nftables.rules import CollectionDefinition
from kproxy.proxy.backends.nftables.static_rules import Context, Options
from kproxy.proxy.plan import Plan, ServicePlan, ServicePortName


@dataclass(frozen=True, slots=True, eq=False)
class ServiceRules:
    """One service port's part.  Same plan: the same object, as `desired_state` makes it."""

    service: ServicePlan
    endpoint_numbers: NumberedEndpoints

    def elements(self) -> Iterator[SetElement]:
        """Its own elements."""
        return compile.service_elements(self.service, self.endpoint_numbers)

    def shared(self) -> Iterator[Shared]:
        """Objects that it shares with other service ports."""
        return compile.shared_objects(self.service, self.endpoint_numbers)

    def chains(self) -> tuple[Chain, ...]:
        """Its own chains, if it has affinity."""
        return compile.affinity_chains(self.service, self.endpoint_numbers)


@dataclass(frozen=True, slots=True, eq=False)
class DesiredState:
    """All objects that the kernel should hold for one plan.

    ``services`` are the plan's; ``reference_counts``: number of service ports that need each shared object;
    ``node_elements``: elements that no service port adds.
    """

    context: Context
    services: tuple[ServicePlan, ...]
    service_rules: Mapping[ServicePortName, ServiceRules]
    reference_counts: Mapping[Shared, int]
    node_elements: frozenset[SetElement]

    def collections(self) -> Iterator[CollectionDefinition]:
        """All sets and maps."""
        return static_rules.static_collections(self.context)

    def chains(self) -> Iterator[Chain]:
        """All chains; each after those it jumps to."""
        yield from static_rules.static_chains(self.context)
        for needed in self.reference_counts:
            if isinstance(needed, CountChain):
                yield static_rules.endpoint_choice_chain(*needed)
        for rules in self.service_rules.values():
            yield from rules.chains()


def desired_state(plan: Plan, options: Options, previous: DesiredState | None = None) -> DesiredState:
    """The desired state for a plan; shares the `ServiceRules` of ``previous`` that did not change."""
    context = Context(
        family=plan.family,
        detector=plan.detector,
        cluster_ip_masquerade=plan.cluster_ip_masquerade,
        node_port_ips=plan.node_ports.addresses is not None,
        options=options,
    )
    if previous is None:
        previous = DesiredState(context, (), {}, {}, frozenset())
    moves = _service_changes(previous, plan.services)
    service_rules = dict(previous.service_rules)
    for name, (_, rules) in moves.items():
        if rules is None:
            del service_rules[name]
        else:
            service_rules[name] = rules
    uses = _reference_counts(previous.reference_counts, moves.values())
    return DesiredState(context, plan.services, service_rules, uses, frozenset(_node_elements(plan)))


Pair = tuple[ServiceRules | None, ServiceRules | None]
"""A service port's rules before and after a change; None: it does not exist."""


def changed_services(before: DesiredState, after: DesiredState) -> list[Pair]:
    """The service ports whose rules differ."""
    names = _differing(before.services, after.services)
    pairs = [(before.service_rules.get(name), after.service_rules.get(name)) for name in names]
    return [pair for pair in pairs if pair[0] is not pair[1]]


def _differing(
    before: tuple[ServicePlan, ...], after: tuple[ServicePlan, ...]
) -> dict[ServicePortName, ServicePlan | None]:
    """Candidates for a change: all entries that are another object ``after``, None where one is removed.

    Most entries are the same object at the same place, which is compared first.
    """
    if len(before) == len(after):
        moved = tuple(compress(zip(before, after, strict=True), map(is_not, before, after)))
        gone, come = [old for old, _ in moved], [new for _, new in moved]
    else:
        old, new = set(map(id, before)), set(map(id, after))
        gone = [service for service in before if id(service) not in new]
        come = [service for service in after if id(service) not in old]
    return {service.name: None for service in gone} | {service.name: service for service in come}


def _fragment(service: ServicePlan, before: ServiceRules | None) -> ServiceRules:
    old: NumberedEndpoints = before.endpoint_numbers if before is not None else {}
    numbered = {
        scope: compile.assign_numbers(old[scope], pool.endpoints) if scope in old else pool.endpoints
        for scope, pool in compile.used_pools(service).items()
    }
    return ServiceRules(service, numbered)


def _service_changes(
    previous: DesiredState, services: tuple[ServicePlan, ...]
) -> dict[ServicePortName, Pair]:
    """Service ports that differ from ``previous``, each with its rules before and after."""
    moves: dict[ServicePortName, Pair] = {}
    for name, service in _differing(previous.services, services).items():
        before = previous.service_rules.get(name)
        if service is None:
            moves[name] = (before, None)
        elif before is None or before.service is not service:
            moves[name] = (before, _fragment(service, before))
    return moves


def _reference_counts(before: Mapping[Shared, int], pairs: Iterable[Pair]) -> Mapping[Shared, int]:
    by: Counter[Shared] = Counter()
    for old, new in pairs:
        by.update(new.shared() if new else ())
        by.subtract(old.shared() if old else ())
    moved = {thing: count for thing, count in by.items() if count}
    if not moved:
        return before
    uses = dict(before)
    for thing, count in moved.items():
        uses[thing] = uses.get(thing, 0) + count
        if not uses[thing]:
            del uses[thing]
    return uses


def _node_elements(plan: Plan) -> Iterator[SetElement]:
    for address in plan.node_ports.addresses or ():
        yield SetElement(names.NODE_PORT_IPS, (address,))
    networks: list[Network] = [*collapse_addresses(plan.service_cidrs)]  # type: ignore[type-var]
    for network in networks:
        yield SetElement(names.SERVICE_CIDRS, (network,))
