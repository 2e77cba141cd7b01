"""Generator of worlds from choices: Services, changes, and probes. Pure: the same choices, the same world.

The caller supplies the choices: a seeded random number generator, or Hypothesis in tests. The first option is always
the plainest. Only objects that an API server would store are made.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol as Interface
from typing import TypeVar

from kproxy.conformance.case import (
    DEFAULT,
    Apply,
    Case,
    CaseEndpoint,
    CaseService,
    Delete,
    Feature,
    Policy,
    Port,
    Probe,
    Profile,
    SourceRange,
    Step,
    Target,
    TargetKind,
    Type,
    Vantage,
    VantageKind,
    Vip,
    client,
    host,
    pod,
    remote,
)
from kproxy.conformance.cases import profiles
from kproxy.conformance.generate.oracle_answers import with_oracle_answers
from kproxy.lab.topology import NODES
from kproxy.model.network import Family, Protocol

T = TypeVar("T")

PROFILES: tuple[Profile, ...] = (
    *(DEFAULT,) * 6,
    profiles.NO_DETECTOR,
    profiles.NODE_CIDR,
    profiles.MASQUERADE_ALL,
    profiles.NODE_PORT_CIDR,
    profiles.PRIMARY_WITHOUT_EXTERNAL_IPS,
    profiles.LOCALHOST_OFF,
)
"""Profiles to choose from: half of the worlds have the default configuration."""

ENDPOINT_PLACEMENTS: tuple[tuple[str, ...], ...] = (*(("a1", "a2", "b1", "b2"),) * 3, ("a1", "a", "b1", "b"))
"""Places of a Service's endpoints: pods, and nodes on few Services."""
MOST_PROBES = 6
MOST_CHANGES = 2


class Chooser(Interface):
    """Function that picks one of some options."""

    def __call__(self, options: Sequence[T], /) -> T:
        """One of the options."""
        ...


def generate_worlds(seed: int, count: int) -> Iterator[Case]:
    """Worlds in number; each depends on the seed and its own number alone."""
    for number in range(count):
        yield generate_world(random.Random(f"{seed}/{number}").choice, f"fuzz.world-{seed}-{number}")  # noqa: S311


def generate_world(choose: Chooser, id: str) -> Case:
    """One world: Services, some probes, then changes and probes again, with the oracle's verdicts."""
    family = choose(tuple(Family))
    names = choose((("web",), ("web", "api")))
    services = {name: generate_service(choose, name) for name in names}
    steps: list[Step] = [Apply(*services.values()), *_probes(choose, services)]
    for _ in range(choose(tuple(range(MOST_CHANGES + 1)))):
        steps += [generate_change(choose, services), *_probes(choose, services)]
    about = "A generated world; the answers are the oracle's."
    draft = Case(
        id=id,
        about=about,
        clauses=frozenset(),
        steps=tuple(steps),
        profile=choose(PROFILES),
        families=(family,),
    )
    return with_oracle_answers(replace(draft, features=_features(draft)))


def _features(case: Case) -> frozenset[Feature]:
    """Features that not every mode has: node ports on loopback, where the configuration requires them."""
    probed = any(isinstance(s, Probe) and s.to.kind is TargetKind.NODE_PORT_LOCALHOST for s in case.steps)
    insists = probed and case.profile.localhost_node_ports is True
    return frozenset({Feature.LOCALHOST_NODE_PORTS} if insists else ())


# ------------------------------------------------------------------------------ Services

_TCP, _UDP = Port(), Port(protocol=Protocol.UDP)
PORTS: tuple[tuple[Port, ...], ...] = (
    (_TCP,),
    (_TCP,),
    (_UDP,),
    (Port(name="a"), Port(name="b", number=443)),
    (Port(name="a"), Port(name="b", protocol=Protocol.UDP)),
    (Port(name="a", number=53), Port(name="b", number=53, protocol=Protocol.UDP, same_node_port_as="a")),
)
Conditions = tuple[bool | None, bool | None, bool | None]
"""Conditions of an endpoint as written: ready, serving, terminating."""
CONDITIONS: tuple[Conditions | None, ...] = (
    None,  # no endpoint there
    (True, None, None),
    (True, None, None),
    (None, None, None),
    (False, True, True),
    (False, False, True),
    (False, False, None),
    (False, True, False),
    (True, True, True),
)
HINTS: tuple[tuple[str, ...], ...] = ((), (), (), ("zone-a",), ("zone-b",), ("zone-a", "zone-b"), ("zone-c",))
NODE_HINTS: tuple[tuple[str, ...], ...] = ((), (), (), ("a",), ("b",))
RANGES: tuple[tuple[SourceRange | str, ...], ...] = (
    (),
    (),
    (SourceRange.EVERYWHERE,),
    (SourceRange.NODE_NETWORK,),
    (SourceRange.REMOTE_NETWORK,),
    (SourceRange.CLUSTER_CIDR, SourceRange.NOWHERE),
    ("a1", "client"),
    (SourceRange.NOWHERE,),
    (SourceRange.LOWER_HALF, SourceRange.UPPER_HALF),
)


def generate_service(choose: Chooser, name: str) -> CaseService:
    """Service with its endpoints."""
    kind = choose(tuple(Type)[:3])
    vips = choose(
        ((Vip(),), (Vip(), Vip()), (Vip(ip_mode="Proxy"),), (Vip(ip_mode="VIP"),), (Vip(hostname_only=True),))
    )
    ports = choose(PORTS)
    if kind is Type.LOAD_BALANCER and not choose((True, True, True, False)):
        ports = tuple(replace(port, node_port=False) for port in ports)
    external_ips = choose((0, 0, 1, 2))
    exposed = kind is not Type.CLUSTER_IP or external_ips > 0
    return CaseService(
        name=name,
        type=kind,
        ports=ports,
        endpoints=generate_endpoints(choose),
        slice_ports=ports[:1] if len(ports) > 1 and not choose((True, True, True, False)) else None,
        internal_policy=choose((None, Policy.CLUSTER, Policy.LOCAL)),
        external_policy=choose((None, Policy.CLUSTER, Policy.LOCAL)) if exposed else None,
        external_ips=external_ips,
        vips=vips if kind is Type.LOAD_BALANCER else (),
        source_ranges=choose(RANGES) if kind is Type.LOAD_BALANCER else (),
        affinity_seconds=choose((None, None, None, 10800)),
    )


def generate_endpoints(choose: Chooser) -> tuple[CaseEndpoint, ...]:
    """Endpoint, or none, in each place; hints on few Services."""
    hinted = choose((False, False, True))
    found = []
    for on in choose(ENDPOINT_PLACEMENTS):
        conditions = choose(CONDITIONS)
        if conditions is not None:
            zones = choose(HINTS) if hinted else ()
            nodes = choose(NODE_HINTS) if hinted else ()
            piece, shift = choose(((0, 0), (0, 0), (1, 0), (1, 1)))
            ready, serving, terminating = conditions
            found.append(
                CaseEndpoint(
                    on=on,
                    ready=ready,
                    serving=serving,
                    terminating=terminating,
                    zones=zones,
                    nodes=nodes,
                    slice=piece,
                    shift=shift,
                )
            )
    return tuple(found)


# ------------------------------------------------------------------------------ changes


def generate_change(choose: Chooser, services: dict[str, CaseService]) -> Apply | Delete:
    """Change of one Service: other endpoints, other fields, another Service, deletion, or re-creation."""
    name = choose(tuple(services))
    before = services[name]
    match choose(("endpoints", "endpoints", "fields", "other", "delete")):
        case "endpoints":
            services[name] = before.replace(endpoints=generate_endpoints(choose))
        case "fields":
            services[name] = _with_other_fields(choose, before)
        case "other":
            services[name] = generate_service(choose, name)
        case _:
            return Delete(before)
    return Apply(services[name])


def generate_small_change(choose: Chooser, service: CaseService) -> CaseService:
    """The Service as a controller changes it next: one endpoint has other conditions, or has gone, or all have."""
    if not service.endpoints:
        return service.replace(endpoints=generate_endpoints(choose))
    place = choose(range(len(service.endpoints)))
    rest = service.endpoints[:place] + service.endpoints[place + 1 :]
    what = choose(("conditions", "conditions", "gone", "all gone"))
    if what == "all gone":
        return service.replace(endpoints=())
    conditions = choose(CONDITIONS) if what == "conditions" else None
    if conditions is None:
        return service.replace(endpoints=rest)
    ready, serving, terminating = conditions
    changed = replace(service.endpoints[place], ready=ready, serving=serving, terminating=terminating)
    return service.replace(endpoints=(*service.endpoints[:place], changed, *service.endpoints[place + 1 :]))


def generate_edit(choose: Chooser, service: CaseService) -> CaseService:
    """The Service as its owner edits it: one policy, its affinity or its source ranges, and nothing else."""
    flipped: dict[Policy | None, Policy] = {Policy.LOCAL: Policy.CLUSTER}
    edits: dict[str, tuple[object, ...]] = {
        "internal_policy": (flipped.get(service.internal_policy, Policy.LOCAL),),
        "affinity_seconds": (None if service.affinity_seconds else 10800,),
    }
    if service.type is not Type.CLUSTER_IP or service.external_ips:
        edits["external_policy"] = (flipped.get(service.external_policy, Policy.LOCAL),)
    if service.type is Type.LOAD_BALANCER:
        edits["source_ranges"] = tuple(ranges for ranges in RANGES if ranges != service.source_ranges)
    field = choose(tuple(edits))
    return service.replace(**{field: choose(edits[field])})


def _with_other_fields(choose: Chooser, before: CaseService) -> CaseService:
    """Another Service of the same name, endpoints and ports; only load balancers may lack node ports."""
    other = generate_service(choose, before.name)
    bare = other.type is Type.LOAD_BALANCER and not other.ports[0].node_port
    ports = tuple(replace(port, node_port=not bare) for port in before.ports)
    return other.replace(endpoints=before.endpoints, ports=ports, slice_ports=None)


# ------------------------------------------------------------------------------ senders and targets


def _probes(choose: Chooser, services: dict[str, CaseService]) -> Iterator[Probe]:
    for _ in range(choose(tuple(range(2, MOST_PROBES + 1)))):
        sender, target = generate_flow(choose, services[choose(tuple(services))])
        yield Probe(sender=sender, to=target, expect=frozenset(), spread=True)


def generate_flow(choose: Chooser, service: CaseService) -> tuple[Vantage, Target]:
    """Sender, and a target of a Service."""
    sender = choose(SENDERS)
    target = choose(_targets(service, sender))
    if not choose((True,) * 9 + (False,)):
        target = service.cluster_ip.at_undefined_port()
    return sender, target


SENDERS: tuple[Vantage, ...] = (
    *map(pod, ("a1", "a3", "b1", "b3")),
    *map(host, NODES),
    *(sender(node) for sender in (client, remote) for node in NODES),
)


@lru_cache(1 << 12)
def _targets(service: CaseService, sender: Vantage) -> tuple[Target, ...]:
    """Targets of a sender at a Service, as it is now or was; remembered, since a universe has a thousand probes of few Services."""
    return tuple(_targets_at_ports(service, sender))


def _targets_at_ports(service: CaseService, sender: Vantage) -> Iterator[Target]:
    for port in service.ports:
        yield service.cluster_ip.at(port.name)
        for index in range(service.external_ips):
            yield service.external_ip(index).at(port.name)
        for index, vip in enumerate(service.vips):
            if not vip.hostname_only:
                yield service.vip(index).at(port.name)
        if service.type is not Type.CLUSTER_IP:
            yield from _node_ports(service, port, sender)


def _node_ports(service: CaseService, port: Port, sender: Vantage) -> Iterator[Target]:
    for node in NODES:
        yield service.node_port(node).at(port.name)
        if sender.node == node and sender.kind in {VantageKind.HOST, VantageKind.ON_LINK}:
            yield service.node_port(node, second=True).at(port.name)
    if sender.kind is VantageKind.HOST:
        yield service.localhost(sender.node).at(port.name)
