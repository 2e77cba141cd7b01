"""Schedule of a seed: the same seed, the same schedule. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kproxy.conformance.case import Apply, CaseService, Delete, SetZone
from kproxy.conformance.generate.generate import (
    Chooser,
    generate_change,
    generate_flow,
    generate_service,
    generate_small_change,
)
from kproxy.lab.topology import NODES
from kproxy.model.network import Family
from kproxy.universes.schedule import (
    CONVERGENCE,
    OF_MACHINE,
    OF_NODE,
    FaultKind,
    Resource,
    Schedule,
    TimedChange,
    TimedFault,
    TimedFlow,
    TimedProbe,
)

Step = Apply | Delete | SetZone
SERVICES = ("web", "api", "dns")
PAUSES = (0.0, 0.0, 0.001, 0.01, 0.1, 0.1, 0.5, 1.0, 3.0, 8.0)
"""Seconds between two changes: bursts, changes within a sync, and changes that have settled."""
LAGS = (0.0, 0.0, 0.0, 0.02, 0.3, 2.0)
"""Seconds by which EndpointSlices follow their Service."""
ZONES = ("zone-a", "zone-b", "")
LENGTHS = (0.2, 1.0, 4.0, 12.0, 12.0, 40.0)
"""Seconds that a fault lasts."""
LONGEST = {
    FaultKind.WRITES_REFUSED: 12.0,
    FaultKind.PROXY_RESTARTED: 1.0,
    FaultKind.THREADS_HELD: 1.0,
}
"""Seconds that a fault lasts at most: each refused write, and each call of a traced thread, costs the host some computing."""
DELAYS = (0.001, 0.01, 0.1, 0.4)
"""Seconds that a slow write, or event, takes."""
HELD = (0.00005, 0.001)
"""Seconds that a thread is held at most."""
FAULTS = (*FaultKind, FaultKind.WRITES_SLOW, FaultKind.WRITES_SLOW, FaultKind.WRITES_REFUSED)
"""Faults to choose from: since computing takes no time, slow writes alone give a sync its width."""
HOLDING = frozenset({FaultKind.PROXY_RESTARTED, FaultKind.THREADS_HELD})
SLOWED = frozenset({FaultKind.WRITES_SLOW, FaultKind.EVENTS_TRICKLE, FaultKind.LISTS_CUT})
STEPS = (-86400.0, -3.0, 3.0, 86400.0)
"""Seconds by which the wall clock is wrong."""
RESOURCES = (None, None, *Resource)
AFTER_A_CHANGE = (0.0, 0.002, 0.02, 0.3, 1.5, CONVERGENCE + 0.5)
"""Seconds after a change at which it is probed."""
PROBES = 3
"""Probes of one moment; starting a universe costs far more than they do."""
FINAL_PROBES = 100
FLOWS = 6
CALM = (4, 6, 8)
"""Changes that come alone when all faults are over: among faults, and in bursts, much of what a proxy misses is made good by
the next change."""
FLOW_PAUSES = (0.3, 1.0, 1.0)
"""Seconds between two exchanges on a flow."""


def draw_schedule(seed: int) -> Schedule:
    """Schedule of a seed: Services, changes among faults, changes in calm, with probes and flows, and probes when all has settled."""
    choose = random.Random(f"universe/{seed}").choice  # noqa: S311
    family = choose(tuple(Family))
    steps = _steps(choose)
    changes = tuple(_changes(choose, steps))
    faults = tuple(sorted(_faults(choose, changes[-1].at), key=lambda fault: fault.at))
    drawn = Schedule(seed=seed, family=family, changes=changes, faults=faults)
    calm = tuple(_calm_changes(choose, steps, drawn))
    drawn = Schedule(seed=seed, family=family, changes=(*changes, *calm), faults=faults)
    probes = sorted(_probes(choose, drawn), key=lambda probe: probe.at)
    flows = tuple(_flows(choose, drawn))
    return replace(drawn, probes=tuple(probes), flows=flows)


def _changes(choose: Chooser, steps: Iterator[Step]) -> Iterator[TimedChange]:
    """Services, then changes in bursts and with pauses."""
    if choose((True, False)):  # nodes that have their zone before some start of their proxy
        yield from (TimedChange(at=0.0, step=SetZone(node, choose(ZONES))) for node in NODES)
    yield TimedChange(at=0.0, step=next(steps))
    at = CONVERGENCE + 1
    for _ in range(choose(range(9, 21))):
        change = TimedChange(at=round(at, 6), step=next(steps), lag=choose(LAGS))
        yield change
        at = change.done + choose(PAUSES)


def _calm_changes(choose: Chooser, steps: Iterator[Step], schedule: Schedule) -> Iterator[TimedChange]:
    """Changes that come alone when all has recovered: each must be in effect before the next."""
    for number in range(choose(CALM)):
        at = schedule.end + CONVERGENCE + number * (max(LAGS) + CONVERGENCE + 1.0)
        yield TimedChange(at=round(at, 6), step=next(steps), lag=choose(LAGS))


def _steps(choose: Chooser) -> Iterator[Step]:
    """Services, then changes of them without end; a Service that is deleted is deleted again after it was there again."""
    services = {name: generate_service(choose, name) for name in SERVICES[: choose((2, 3))]}
    yield Apply(*services.values())
    deleted: set[str] = set()
    while True:
        step = _change(choose, services)
        if isinstance(step, Delete):
            if step.service.name in deleted:
                continue
            deleted.add(step.service.name)
        elif isinstance(step, Apply):
            deleted -= {service.name for service in step.services}
        yield step


def _change(choose: Chooser, services: dict[str, CaseService]) -> Step:
    match choose(("zone", "small", "small", "small", *("any",) * 5)):
        case "zone":
            return SetZone(choose(NODES), choose(ZONES))
        case "small":
            name = choose(tuple(services))
            services[name] = generate_small_change(choose, services[name])
            return Apply(services[name])
        case _:
            return generate_change(choose, services)


def _faults(choose: Chooser, end: float) -> Iterator[TimedFault]:
    """Faults, of which those of one node, or of the API server and the machine, do not overlap."""
    free = {"": CONVERGENCE, **dict.fromkeys(NODES, CONVERGENCE)}
    for _ in range(choose((0, 1, 2, 3, 4))):
        kind = choose(FAULTS)
        node = choose(NODES) if kind in OF_NODE else ""
        at = free[node] + choose(PAUSES)
        seconds = min(choose(LENGTHS), LONGEST.get(kind, max(LENGTHS)))
        free[node] = at + seconds + 1.0
        if at <= end:
            yield TimedFault(
                at=round(at, 6),
                seconds=seconds,
                kind=kind,
                node=node,
                pause=_pause(choose, kind),
                resource=None if node or kind in OF_MACHINE else choose(RESOURCES),
            )


def _pause(choose: Chooser, kind: FaultKind) -> float:
    if kind is FaultKind.CLOCK_STEPS:
        return choose(STEPS)
    if kind in HOLDING:
        return choose(HELD)
    return choose(DELAYS) if kind in SLOWED else 0.0


def _probes(choose: Chooser, schedule: Schedule) -> Iterator[TimedProbe]:
    moments = [at for change in schedule.changes for at in (change.at, change.done)] + [
        fault.end for fault in schedule.faults
    ]
    for moment in dict.fromkeys(moments):
        for after in AFTER_A_CHANGE:
            for _ in range(PROBES):
                yield _probe(choose, schedule, round(moment + after, 6))
    for number in range(FINAL_PROBES):
        yield _probe(choose, schedule, round(schedule.end + 0.05 * number, 6))


def _flows(choose: Chooser, schedule: Schedule) -> Iterator[TimedFlow]:
    """Flows to Services of the beginning, from when these have settled, or from a later change on."""
    for _ in range(FLOWS):
        later = choose((True, False, False)) and len(schedule.changes) > 1
        at = choose(schedule.changes[1:]).at if later else CONVERGENCE
        sent = _probe(choose, schedule, at)
        yield TimedFlow(at=sent.at, sender=sent.sender, to=sent.to, pause=choose(FLOW_PAUSES))


def _probe(choose: Chooser, schedule: Schedule, at: float) -> TimedProbe:
    """Probe of a Service that a change before it declares, as it is or was."""
    forms: Sequence[CaseService] = [
        service
        for change in schedule.changes
        if change.at <= at and isinstance(change.step, Apply)
        for service in change.step.services
    ]
    sender, to = generate_flow(choose, choose(forms))
    return TimedProbe(at=at, sender=sender, to=to)
