"""All that one family's kernel should hold, as a value that shares what did not change with its predecessor.  Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from kproxy.model.network import Address, format_address
from kproxy.proxy.backends.ipvs import static_rules
from kproxy.proxy.backends.ipvs.compile import (
    Context,
    DesiredVirtualServer,
    IpvsObjects,
    ipvs_objects,
    shortcut_keys,
)
from kproxy.proxy.backends.ipvs.names import IpSet
from kproxy.proxy.backends.ipvs.rules import Key, Member, Ruleset
from kproxy.proxy.backends.ipvs.static_rules import ChainContext, Options
from kproxy.proxy.plan import FrontendKey, Plan, ServicePlan, ServicePortName

SharedObject = Member | Address
"""Object that several service ports may need."""


@dataclass(frozen=True, slots=True, eq=False)
class ServiceRules:
    """One service port's objects, and the number of each frontend's shortcut."""

    service: ServicePlan
    shortcut_numbers: Mapping[FrontendKey, int]
    objects: IpvsObjects


@dataclass(frozen=True, eq=False)
class DesiredState:
    """All objects that the kernel should hold for one plan.

    ``reference_counts``: number of service ports that need each shared object; ``node_members``: members that no service
    port adds.
    """

    context: Context
    chain_context: ChainContext
    service_rules: Mapping[ServicePortName, ServiceRules]
    reference_counts: Mapping[SharedObject, int]
    node_members: frozenset[Member]

    @property
    def needs(self) -> set[SharedObject]:
        """All members and addresses."""
        return {*self.reference_counts, *self.node_members}

    @cached_property
    def ruleset(self) -> Ruleset:
        """The iptables part."""
        return static_rules.build_ruleset(self.chain_context)

    def virtuals(self) -> dict[Key, DesiredVirtualServer]:
        """All virtual servers."""
        return {key: v for rules in self.service_rules.values() for key, v in rules.objects.virtuals.items()}


@dataclass(frozen=True, slots=True)
class Delta:
    """Difference between two desired states.

    ``virtuals``: those that may differ (None: unwanted).  ``needed``, ``unneeded``: shared objects that begin and end
    to be needed.  ``ruleset``: the chains, where they may differ.  ``whole``: to a state just read, which another mode
    may have left.
    """

    virtuals: Mapping[Key, DesiredVirtualServer | None]
    needed: tuple[SharedObject, ...]
    unneeded: tuple[SharedObject, ...]
    ruleset: Ruleset | None = None
    whole: bool = False


def desired_state(
    plan: Plan, context: Context, options: Options, previous: DesiredState | None = None
) -> DesiredState:
    """The desired state for a plan; shares the `ServiceRules` of ``previous`` that did not change."""
    chain_context = ChainContext(plan.family, plan.detector, plan.cluster_ip_masquerade, options)
    same = previous is not None and (previous.context, previous.chain_context) == (context, chain_context)
    old = previous.service_rules if previous is not None else {}
    numbers = _ShortcutNumbers(old.values())
    prefix, _ = static_rules.mark_masks(options)
    whole = 0xFFFF_FFFF & ~options.masquerade_mark
    service_rules = {}
    for service in plan.services:
        rules = old.get(service.name)
        if rules is None or not same or rules.service is not service:
            own = {key: numbers.number(key) for key in shortcut_keys(service)}
            marks = {
                key: prefix | _insert_zero_bit(number, options.masquerade_mark) for key, number in own.items()
            }
            rules = ServiceRules(service, own, ipvs_objects(service, marks, whole, context))
        service_rules[service.name] = rules
    checks = frozenset(Member(IpSet.HEALTH_CHECK_NODE_PORT, str(check.port)) for check in plan.health_checks)
    return DesiredState(context, chain_context, service_rules, _uses(previous, service_rules), checks)


def delta(before: DesiredState, after: DesiredState) -> Delta:
    """Difference between two desired states, in time proportional to its size."""
    virtuals: dict[Key, DesiredVirtualServer | None] = {}
    needed: dict[SharedObject, None] = dict.fromkeys(after.node_members - before.node_members)
    unneeded: dict[SharedObject, None] = dict.fromkeys(before.node_members - after.node_members)
    for old, new in _pairs(before.service_rules, after.service_rules):
        if old is not None:
            virtuals |= {key: virtuals.get(key) for key in old.objects.virtuals}
            unneeded |= dict.fromkeys(use for use in _objects_of(old) if use not in after.reference_counts)
        if new is not None:
            virtuals |= new.objects.virtuals
            needed |= dict.fromkeys(use for use in _objects_of(new) if use not in before.reference_counts)
    ruleset = after.ruleset if after.chain_context != before.chain_context else None
    return Delta(virtuals, tuple(needed), tuple(unneeded), ruleset)


def _pairs(
    old: Mapping[ServicePortName, ServiceRules], new: Mapping[ServicePortName, ServiceRules]
) -> Iterator[tuple[ServiceRules | None, ServiceRules | None]]:
    for name, rules in new.items():
        known = old.get(name)
        if known is not rules:
            yield known, rules
    yield from ((rules, None) for name, rules in old.items() if name not in new)


def _uses(
    previous: DesiredState | None, service_rules: Mapping[ServicePortName, ServiceRules]
) -> Mapping[SharedObject, int]:
    moves: Counter[SharedObject] = Counter()
    for before, after in _pairs(previous.service_rules if previous is not None else {}, service_rules):
        moves.update(_objects_of(after))
        moves.subtract(_objects_of(before))
    moved = {use: by for use, by in moves.items() if by}
    if previous is None:
        return moved
    if not moved:
        return previous.reference_counts
    uses = dict(previous.reference_counts)
    for use, by in moved.items():
        uses[use] = uses.get(use, 0) + by
        if not uses[use]:
            del uses[use]
    return uses


def _objects_of(rules: ServiceRules | None) -> Iterator[SharedObject]:
    if rules is not None:
        yield from rules.objects.members
        for address in rules.objects.addresses:
            yield address
            yield Member(IpSet.IPVS_IPS, format_address(address))


class _ShortcutNumbers:
    """Numbers of 23 bits for the shortcuts of frontends: derived from the frontend, so most likely the same after a restart.

    A frontend keeps its number while it exists, whatever its service port is called: its connections stay.
    """

    def __init__(self, known: Iterable[ServiceRules]) -> None:
        self._numbers = {key: number for rules in known for key, number in rules.shortcut_numbers.items()}
        self._taken = set(self._numbers.values())

    def number(self, key: FrontendKey) -> int:
        """The number of a frontend, or a free one."""
        number = self._numbers.get(key)
        if number is None:
            number = int.from_bytes(hashlib.sha256(" ".join(map(str, key)).encode()).digest()[:4]) >> 9
            while number in self._taken:
                number = (number + 1) & 0x7F_FFFF
            self._numbers[key] = number
            self._taken.add(number)
        return number


def _insert_zero_bit(number: int, bit: int) -> int:
    """The number's bits with one inserted at the place of ``bit``, a zero."""
    below = number & (bit - 1)
    return (number - below) << 1 | below
