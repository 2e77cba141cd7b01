"""Schedule of a seed: the same seed, the same schedule. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from kproxy.conformance.case import (
    AddNodeAddress,
    AddServiceCidr,
    Apply,
    CaseEndpoint,
    CaseService,
    Delete,
    SetTaints,
    SetZone,
)
from kproxy.conformance.generate.generate import (
    Chooser,
    generate_change,
    generate_edit,
    generate_service,
    generate_small_change,
)
from kproxy.lab.topology import NODES
from kproxy.model.network import Family
from kproxy.spec.health import LEAVING_TAINT
from kproxy.universes.draw_traffic import (
    SETTLED,
    draw_checks,
    draw_flows,
    draw_probes,
    draw_probes_of_all,
    draw_udp_flows_across,
    forms_until,
)
from kproxy.universes.schedule import (
    CONVERGENCE,
    OF_MACHINE,
    OF_NODE,
    ChangeStep,
    FaultKind,
    Resource,
    Schedule,
    TimedChange,
    TimedFault,
    TimedFlow,
    present_services,
)

SERVICES = ("web", "api", "dns")
PAUSES = (0.0, 0.0, 0.001, 0.01, 0.1, 0.1, 0.5, 1.0, 3.0, 8.0)
"""Seconds between two changes: bursts, changes within a sync, and changes that have settled."""
LAGS = (0.0, 0.0, 0.0, 0.02, 0.3, 2.0)
"""Seconds by which EndpointSlices follow their Service."""
OTHER_POD = {"a1": "a2", "a2": "a1", "b1": "b2", "b2": "b1"}
ZONES = ("zone-a", "zone-b", "")
TAINTS = ((LEAVING_TAINT,), ("node.example/other",), ())
LENGTHS = (0.2, 1.0, 4.0, 12.0, 12.0, 40.0, 100.0)
"""Seconds that a fault lasts."""
AWAY = frozenset(
    {FaultKind.API_REFUSES, FaultKind.WATCHES_STALL, FaultKind.LISTS_STALL, FaultKind.HISTORY_GONE}
)
"""Faults that keep the API server away, and may last longest: so long that pauses between attempts have grown to their bound."""
LONGEST = {
    FaultKind.WRITES_REFUSED: 12.0,
    FaultKind.RULES_RELOADED: 4.0,
    FaultKind.RULES_LOST: 0.2,
    FaultKind.PROXY_RESTARTED: 1.0,
    FaultKind.THREADS_HELD: 1.0,
}
"""Seconds that such a fault lasts at most: each refused write, and each call of a traced thread, costs the host some computing."""
DELAYS = (0.001, 0.01, 0.1, 0.4)
"""Seconds that a slow write, one that fails, or an event takes."""
HELD = (0.00005, 0.001)
"""Seconds that a thread is held at most."""
BEFORE_A_CHANGE = (0.05, 0.002, -0.01)
"""Seconds by which a fault may begin before a change: so that the change's own sync meets it, and later ones where it is short."""
REPLACED_BEFORE = (*BEFORE_A_CHANGE, 3.0)
"""Seconds by which a proxy is replaced before a change: so that its start meets it, and also when all has settled."""
NEXT_CHANGES = 5
DRAWN_APART = frozenset(
    {FaultKind.LINK_DOWN, FaultKind.MEMORY_SHORT, FaultKind.PROXY_CRASHED, FaultKind.PROXY_REPLACED}
)
FAULTS = (
    *(kind for kind in FaultKind if kind not in DRAWN_APART),
    FaultKind.WRITES_SLOW,
    FaultKind.WRITES_SLOW,
    FaultKind.WRITES_REFUSED,
)
"""Faults to choose from: since computing takes no time, slow writes alone give a sync its width.  A link that is down hides much of
what others show, so it is the last of a universe; where memory is short, some of the writes
are refused that all would be, and a proxy that crashes is one whose writes are slow."""
OTHER_KINDS = {
    "memory": (FaultKind.WRITES_REFUSED, FaultKind.MEMORY_SHORT),
    "crash": (FaultKind.WRITES_SLOW, FaultKind.WRITES_SLOW, FaultKind.PROXY_CRASHED),
}
"""Kinds that faults of the first one may have instead, so often, by the name of what chooses."""
HOLDING = frozenset({FaultKind.PROXY_RESTARTED, FaultKind.THREADS_HELD})
SLOWED = frozenset({FaultKind.WRITES_SLOW, FaultKind.WRITES_REFUSED, FaultKind.EVENTS_TRICKLE})
CUT_AFTER = (1.5, 2.5, 4.5)
"""Objects of a list after which it is cut; no client comes back before some tenths of a second have gone."""
RELOADS = (0.05, 0.2, 0.7)
"""Seconds between two reloads of another program's rules."""
STEPS = (-86400.0, -3.0, 3.0, 86400.0)
"""Seconds by which the wall clock is wrong."""
RESOURCES = (None, None, *Resource)
OF_API = tuple(kind for kind in FaultKind if kind not in OF_NODE | OF_MACHINE)
SHORT = (1.0, 4.0, 12.0)
"""Seconds that a last fault of the API server lasts, which nothing follows."""
ATTEMPTS = (2, 5, 15)
"""Slow writes, one after the other, for which a last fault of writes goes on after its first change.  It ends in the middle of
the next one, which then succeeds, with what came meanwhile."""
LOCKED = 12.0
"""Seconds that another holds the lock of iptables: a tool that comes in the middle of them gives up after 5 s
(``life.iptables-lock``)."""
DOWN = (0.2, 4.0, 12.0)
"""Seconds that a link is down."""
LONG_DELAYS = (0.1, 0.4)
WITHIN_A_WRITE = (0.001, 0.05, 0.2)
"""Seconds after a change at which another comes while a slow write may be under way."""
CALM = (10, 14, 18)
"""Changes that come alone when all faults are over: among faults, and in bursts, much of what a proxy misses is made good by
the next change."""


def draw_schedule(seed: int, *, seconds: float = math.inf, versions: bool = False) -> Schedule:
    """Schedule of a seed: Services, changes among faults, changes in calm, with probes and flows, and probes when all has settled.

    ``seconds``: its length at most, 30 or more; with another, a seed has another schedule.  ``versions``: in the calm a node's proxy
    is replaced by its other version, and back; not with ``seconds``, which leave no calm.
    """
    choose = random.Random(f"universe/{seed}").choice  # noqa: S311
    family = choose(tuple(Family))
    choose_apart = random.Random(f"universe/{seed}/apart").choice  # noqa: S311
    steps = _with_common_endpoints(choose_apart, _steps(choose))
    changes = tuple(_changes(choose, steps))
    faults = tuple(sorted(_faults(choose, changes), key=lambda fault: fault.at))
    drawn = _until(seconds, Schedule(seed=seed, family=family, changes=changes, faults=faults))
    recovered = drawn.end
    calm = tuple(_calm_changes(choose, steps, drawn))
    drawn = _until(seconds, replace(drawn, changes=(*drawn.changes, *calm)))
    quiet: list[tuple[float, TimedChange]] = []
    across: list[TimedFlow] = []
    for draw_fault in (_fault_of_writes, _fault_of_api):
        fault, pauses = draw_fault(choose, drawn.end + CONVERGENCE)
        if fault.recovered + CONVERGENCE > seconds:
            continue
        drawn = replace(drawn, faults=(*drawn.faults, fault))
        for pause in pauses:
            at = round(fault.at + fault.seconds / 2 + pause, 6)
            change = TimedChange(at=at, step=_step_that_shows(choose, steps, drawn))
            drawn = replace(drawn, changes=(*drawn.changes, change))
            if draw_fault is _fault_of_writes:
                across += draw_udp_flows_across(choose_apart, drawn, fault, change)
        quiet.append((drawn.end, change))
    probes = sorted(draw_probes(choose, drawn, recovered, quiet), key=lambda probe: probe.at)
    flows = (*draw_flows(choose, drawn), *across)
    checks = sorted(draw_checks(choose, drawn), key=lambda check: check.at)
    drawn = _until(seconds, replace(drawn, probes=tuple(probes), flows=flows, checks=tuple(checks)))
    if versions:
        drawn = _with_versions(random.Random(f"universe/{seed}/versions").choice, drawn, recovered)  # noqa: S311
    for name, kinds in OTHER_KINDS.items():
        drawn = _with_other_kinds(random.Random(f"universe/{seed}/{name}").choice, drawn, kinds)  # noqa: S311
    return _until(seconds, _with_link_down(random.Random(f"universe/{seed}/link").choice, drawn))  # noqa: S311


def _until(seconds: float, schedule: Schedule) -> Schedule:
    """The part of a schedule that can be judged in so many seconds; of the changes, those before the first that cannot."""
    return replace(
        schedule,
        changes=tuple(takewhile(lambda one: one.done + SETTLED <= seconds, schedule.changes)),
        faults=tuple(one for one in schedule.faults if one.recovered + SETTLED - CONVERGENCE <= seconds),
        probes=tuple(one for one in schedule.probes if one.at <= seconds),
        flows=tuple(one for one in schedule.flows if one.at <= seconds),
        checks=tuple(one for one in schedule.checks if one.at <= seconds),
    )


def _changes(choose: Chooser, steps: Iterator[ChangeStep]) -> Iterator[TimedChange]:
    """Services, then changes in bursts and with pauses."""
    if choose((True, False)):  # nodes that have their zone before some start of their proxy
        yield from (TimedChange(at=0.0, step=SetZone(node, choose(ZONES))) for node in NODES)
    yield TimedChange(at=0.0, step=next(steps))
    at = CONVERGENCE + 1
    for _ in range(choose(range(9, 21))):
        change = TimedChange(at=round(at, 6), step=next(steps), lag=choose(LAGS))
        yield change
        at = change.done + choose(PAUSES)


def _calm_changes(choose: Chooser, steps: Iterator[ChangeStep], schedule: Schedule) -> Iterator[TimedChange]:
    """Changes that come alone when all has recovered: each must be in effect before the next."""
    calm = [next(steps) for _ in range(choose(CALM))]
    if choose((True, False)):
        calm += _change_of_zones(choose, choose(forms_until(schedule, schedule.end)))
    for number, step in enumerate(calm):
        at = schedule.end + CONVERGENCE + number * (max(LAGS) + CONVERGENCE + 1.0)
        yield TimedChange(at=round(at, 6), step=step, lag=choose(LAGS))


def _fault_of_writes(choose: Chooser, at: float) -> tuple[TimedFault, tuple[float, ...]]:
    """Writes that are slow or fail, and changes that come while one is under way; each with a pause after the first."""
    kind = choose((FaultKind.WRITES_SLOW, FaultKind.WRITES_REFUSED, FaultKind.XTABLES_LOCKED))
    if kind is FaultKind.XTABLES_LOCKED:
        fault = TimedFault(at=round(at, 6), seconds=LOCKED, kind=kind, node="")
    else:
        attempts, node, pause = choose(ATTEMPTS), choose(NODES), choose(LONG_DELAYS)
        seconds = 2 * (attempts + 0.5) * pause  # the first change comes in the middle
        fault = TimedFault(at=round(at, 6), seconds=round(seconds, 6), kind=kind, node=node, pause=pause)
    return fault, (0.0, choose(WITHIN_A_WRITE))


def _fault_of_api(choose: Chooser, at: float) -> tuple[TimedFault, tuple[float, ...]]:
    """A fault of the API server, with one change."""
    kind, seconds = choose(OF_API), choose(SHORT)
    fault = TimedFault(
        at=round(at, 6),
        seconds=seconds,
        kind=kind,
        node="",
        pause=_pause(choose, kind, seconds),
        resource=choose(RESOURCES),
    )
    return fault, (0.0,)


def _with_versions(choose: Chooser, drawn: Schedule, recovered: float) -> Schedule:
    """A schedule, and in its calm, from when all has recovered until the last faults, a node whose proxy is replaced, and back."""
    calm = [change for change in drawn.changes if recovered < change.at < drawn.faults[-2].at]
    node, half = choose(NODES), len(calm) // 2
    replaced = (
        TimedFault(
            at=round(choose(some).at - choose(REPLACED_BEFORE), 6),
            seconds=0.0,
            kind=FaultKind.PROXY_REPLACED,
            node=node,
        )
        for some in (calm[:half], calm[half:])
    )
    faults = sorted((*drawn.faults, *replaced), key=lambda fault: fault.at)
    return replace(drawn, faults=tuple(faults))


def _with_other_kinds(choose: Chooser, drawn: Schedule, kinds: Sequence[FaultKind]) -> Schedule:
    """A schedule in which each fault of the first of these kinds is one of all of them."""
    faults = (
        replace(fault, kind=choose(kinds)) if fault.kind is kinds[0] else fault for fault in drawn.faults
    )
    return replace(drawn, faults=tuple(faults))


def _with_link_down(choose: Chooser, drawn: Schedule) -> Schedule:
    """A schedule, and a last fault in which a node's link is down, in half of the universes while endpoints are replaced."""
    at, node, seconds = drawn.end + CONVERGENCE, choose(NODES), choose(DOWN)
    fault = TimedFault(at=round(at, 6), seconds=seconds, kind=FaultKind.LINK_DOWN, node=node)
    moves, changes = tuple(_moves(present_services(drawn.changes))), drawn.changes
    with_change = choose((True, False))
    if moves and with_change:
        changes += (TimedChange(at=round(fault.at + seconds / 2, 6), step=choose(moves)),)
    longer = replace(drawn, changes=changes, faults=(*drawn.faults, fault))
    probes = draw_probes_of_all(choose, longer, longer.end)
    return replace(longer, probes=(*drawn.probes, *probes))


def _step_that_shows(choose: Chooser, steps: Iterator[ChangeStep], schedule: Schedule) -> ChangeStep:
    """A change that packets show at every address of its Service, and that nothing after it makes good where it is missed.

    So it takes endpoints away, or a Service, or brings one: an endpoint that is added may be chosen, or not.  More often
    than not one that leaves all numbers as they are, where it can be: who counts rules does not miss it.
    """
    present = present_services(schedule.changes)
    moves = tuple(_moves(present))
    is_move = choose((True, True, True, False))
    if moves and is_move:
        return choose(moves)
    return next(step for step in steps if _shows(step, present))


def _moves(present: Mapping[str, CaseService]) -> Iterator[ChangeStep]:
    """Steps of rolling updates: a ready endpoint goes and another comes on the same node, or all do so at once."""
    for service in present.values():
        pods = [endpoint for endpoint in service.endpoints if endpoint.on in OTHER_POD]
        for some in (*([one] for one in pods), pods):
            moved = service.replace(
                endpoints=tuple(
                    replace(one, on=OTHER_POD[one.on]) if one in some else one for one in service.endpoints
                )
            )
            is_one_for_each = len({one.on for one in moved.endpoints}) == len(moved.endpoints)
            if is_one_for_each and _places(service) - _places(moved):
                yield Apply(moved)


def _shows(step: ChangeStep, present: Mapping[str, CaseService]) -> bool:
    match step:
        case Apply(services=services):
            return any(
                one.name not in present or _places(present[one.name]) - _places(one) for one in services
            )
        case Delete(service=service):
            return service.name in present
        case _:
            return False


def _places(service: CaseService) -> frozenset[str]:
    """Places of the endpoints that are ready."""
    return frozenset(endpoint.on for endpoint in service.endpoints if endpoint.ready is not False)


def _change_of_zones(choose: Chooser, service: CaseService) -> Iterator[ChangeStep]:
    """Service with an endpoint in each of two zones, then a node that goes from the one to the other."""
    endpoints = tuple(
        CaseEndpoint(on=on, zones=(zone,)) for on, zone in zip(("a1", "b1"), ZONES, strict=False)
    )
    yield Apply(service.replace(endpoints=endpoints, internal_policy=None))
    node = choose(NODES)
    yield from (SetZone(node, zone) for zone in ZONES[:2])


def _steps(choose: Chooser) -> Iterator[ChangeStep]:
    """Services, then changes of them without end; a Service that is deleted is deleted again after it was there again.

    Its EndpointSlices go with it, or stay, as they do where it comes back before the controller has seen that.
    """
    services = {name: generate_service(choose, name) for name in SERVICES[: choose((2, 3))]}
    yield Apply(*services.values())
    deleted: set[str] = set()
    once: list[ChangeStep] = [AddServiceCidr(), *map(AddNodeAddress, NODES)]
    while True:
        if once and choose(range(40)) == 0:
            yield once.pop(choose(range(len(once))))
        step = _change(choose, services)
        if isinstance(step, Delete):
            if step.service.name in deleted:
                continue
            deleted.add(step.service.name)
            step = replace(step, keep_slices=choose((True, False)))
        elif isinstance(step, Apply):
            deleted -= {service.name for service in step.services}
        yield step


def _with_common_endpoints(choose: Chooser, steps: Iterator[ChangeStep]) -> Iterator[ChangeStep]:
    """The steps, in half of the universes with two Services whose pods listen at the same ports: a pod behind both is one endpoint."""
    common = choose((True, False))
    first, second = SERVICES[:2]
    for step in steps:
        if common and isinstance(step, Apply):
            shared = {second: {"same_target_ports_as": first}}
            yield Apply(*(one.replace(**shared.get(one.name, {})) for one in step.services))
        else:
            yield step


def _change(choose: Chooser, services: dict[str, CaseService]) -> ChangeStep:
    name = choose(tuple(services))
    match choose(
        ("zone", "zone", "taints", "hints", "hints", *("small",) * 6, *("edit",) * 3, *("any",) * 8)
    ):
        case "zone":
            return SetZone(choose(NODES), choose(ZONES))
        case "taints":
            return SetTaints(choose(NODES), choose(TAINTS))
        case "hints":
            services[name] = _with_hints(choose, services[name])
        case "small":
            services[name] = generate_small_change(choose, services[name])
        case "edit":
            services[name] = generate_edit(choose, services[name])
        case _:
            return generate_change(choose, services)
    return Apply(services[name])


def _with_hints(choose: Chooser, service: CaseService) -> CaseService:
    """The Service with hints as the EndpointSlice controller writes them: all endpoints have theirs, or none has."""
    if not choose((True, True, True, False)):
        return service.replace(endpoints=tuple(replace(one, zones=(), nodes=()) for one in service.endpoints))
    zones = {node: choose(ZONES[:2]) for node in NODES}
    return service.replace(
        endpoints=tuple(replace(one, zones=(zones[_node_of(one)],), nodes=()) for one in service.endpoints)
    )


def _node_of(endpoint: CaseEndpoint) -> str:
    """The node of an endpoint, whose name its place begins with (``a1``, ``a``)."""
    return endpoint.on[0]


def _faults(choose: Chooser, changes: Sequence[TimedChange]) -> Iterator[TimedFault]:
    """Faults, of which those of one node, or of the API server and the machine, do not overlap."""
    free = {"": CONVERGENCE, **dict.fromkeys(NODES, CONVERGENCE)}
    for _ in range(choose((0, 1, 2, 3, 4))):
        kind = choose(FAULTS)
        node = choose(NODES) if kind in OF_NODE else ""
        at = _beginning(choose, changes, free[node] + choose(PAUSES))
        seconds = min(choose(LENGTHS), max(LENGTHS) if kind in AWAY else LONGEST.get(kind, 40.0))
        free[node] = at + seconds + 1.0
        if at <= changes[-1].at:
            yield TimedFault(
                at=round(at, 6),
                seconds=seconds,
                kind=kind,
                node=node,
                pause=_pause(choose, kind, seconds),
                resource=None if node or kind in OF_MACHINE else choose(RESOURCES),
            )


def _beginning(choose: Chooser, changes: Sequence[TimedChange], earliest: float) -> float:
    """A fault's beginning: as early as it may, or about as often beside one of the next changes, which then meets it."""
    soon = [change.at for change in changes if change.at - max(BEFORE_A_CHANGE) >= earliest][:NEXT_CHANGES]
    is_beside = choose((True, False))
    return choose(soon) - choose(BEFORE_A_CHANGE) if soon and is_beside else earliest


def _pause(choose: Chooser, kind: FaultKind, seconds: float) -> float:
    if kind is FaultKind.CLOCK_STEPS:
        return choose(STEPS)
    if kind is FaultKind.RULES_RELOADED:
        return choose(RELOADS)
    if kind is FaultKind.LISTS_CUT:  # in the middle of a list
        return round(seconds / choose(CUT_AFTER), 6)
    if kind in HOLDING:
        return choose(HELD)
    return choose(DELAYS) if kind in SLOWED else 0.0
