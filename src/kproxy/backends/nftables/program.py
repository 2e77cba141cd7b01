"""All that one family's table should hold, as a value that shares what did not change with its predecessor.

A `Program` keeps of every service port only its `Fragment`: the plan it came from, and which number each endpoint
has.  Elements are made from that when they are wanted, which is pure, so they may be made again.  Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import collapse_addresses

from kproxy.backends.nftables import base, compile, names  # noqa: A004 - the stage's name
from kproxy.backends.nftables.base import Context, Options
from kproxy.backends.nftables.compile import CountChain, Element, Places, Shared, Sticky
from kproxy.backends.nftables.rules import Chain, Collection
from kproxy.net import Network
from kproxy.plan import Exposure, Masquerade, Plan, ServicePlan, ServicePortName


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """One service port's part.  Same plan: the same object, as `program` makes it."""

    service: ServicePlan
    places: Places

    def elements(self) -> Iterator[Element]:
        """Its own elements."""
        return compile.elements(self.service, self.places)

    def shared(self) -> Iterator[Shared]:
        """What it needs together with others."""
        return compile.shared(self.service, self.places)

    def sticky(self) -> Sticky | None:
        """Its own chains, sets and maps, if it has affinity."""
        return compile.sticky(self.service, self.places)


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """What the kernel should hold for one plan.

    ``uses`` says how many service ports need each shared thing; ``extra`` are the elements no Service brings.
    """

    context: Context
    fragments: Mapping[ServicePortName, Fragment]
    uses: Mapping[Shared, int]
    extra: frozenset[Element]

    def collections(self) -> Iterator[Collection]:
        """The constant sets and maps."""
        return base.collections(self.context)

    def chains(self) -> Iterator[Chain]:
        """All chains but those of services with affinity."""
        yield from base.chains(self.context)
        for needed in self.uses:
            if isinstance(needed, CountChain):
                yield base.one_of(*needed)


def program(plan: Plan, options: Options, previous: Program | None = None) -> Program:
    """The program for a plan; fragments of ``previous`` that are still right are kept."""
    context = Context(
        family=plan.family,
        detector=plan.detector,
        cluster_ips=_cluster_ip_masquerade(plan),
        node_port_ips=plan.node_ports.addresses is not None,
        options=options,
    )
    old = previous.fragments if previous is not None else {}
    fragments = {}
    for service in plan.services:
        fragment = old.get(service.name)
        if fragment is None or fragment.service is not service:
            fragment = _fragment(service, fragment)
        fragments[service.name] = fragment
    uses = _uses(previous, fragments)
    return Program(context, fragments, uses, frozenset(_extra(plan)))


def changed(before: Program, after: Program) -> list[tuple[Fragment | None, Fragment | None]]:
    """Service ports whose part differs, as it was and as it is."""
    return _pairs(before.fragments, after.fragments)


def _pairs(
    old: Mapping[ServicePortName, Fragment], new: Mapping[ServicePortName, Fragment]
) -> list[tuple[Fragment | None, Fragment | None]]:
    pairs: list[tuple[Fragment | None, Fragment | None]] = []
    for name, fragment in new.items():
        known = old.get(name)
        if known is not fragment:
            pairs.append((known, fragment))
    pairs += [(fragment, None) for name, fragment in old.items() if name not in new]
    return pairs


def _fragment(service: ServicePlan, before: Fragment | None) -> Fragment:
    old: Places = before.places if before is not None else {}
    places = {
        scope: compile.dense(old[scope], pool.endpoints) if scope in old else pool.endpoints
        for scope, pool in compile.pools(service).items()
    }
    return Fragment(service, places)


def _uses(previous: Program | None, fragments: Mapping[ServicePortName, Fragment]) -> Mapping[Shared, int]:
    pairs = _pairs(previous.fragments if previous is not None else {}, fragments)
    moves: Counter[Shared] = Counter()
    for before, after in pairs:
        moves.update(after.shared() if after else ())
        moves.subtract(before.shared() if before else ())
    moved = {thing: by for thing, by in moves.items() if by}
    if previous is None:
        return moved
    if not moved:
        return previous.uses
    uses = dict(previous.uses)
    for thing, by in moved.items():
        uses[thing] = uses.get(thing, 0) + by
        if not uses[thing]:
            del uses[thing]
    return uses


def _extra(plan: Plan) -> Iterator[Element]:
    for address in plan.node_ports.addresses or ():
        yield Element(names.NODE_PORT_IPS, (address,))
    networks: list[Network] = [*collapse_addresses(plan.service_cidrs)]  # type: ignore[type-var]
    for network in networks:
        yield Element(names.SERVICE_CIDRS, (network,))


def _cluster_ip_masquerade(plan: Plan) -> Masquerade:
    """Settings decide it for all cluster IPs alike, so any of them tells."""
    for service in plan.services:
        for frontend in service.frontends:
            if frontend.exposure is Exposure.CLUSTER_IP:
                return frontend.masquerade
    return Masquerade.NEVER
