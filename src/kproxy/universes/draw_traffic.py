"""Traffic of a universe: probes, flows and health requests, around the changes and faults of its schedule. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kproxy.conformance.case import Apply, CaseService, Delete, TargetKind, client, host
from kproxy.conformance.generate.generate import Chooser, generate_flow
from kproxy.lab.topology import NODES
from kproxy.model.network import Protocol
from kproxy.universes.schedule import (
    CONVERGENCE,
    Schedule,
    TimedChange,
    TimedCheck,
    TimedFault,
    TimedFlow,
    TimedProbe,
)

AFTER_A_CHANGE = (0.0, 0.002, 0.02, 0.3, 1.5)
"""Seconds after a change at which it is probed while it may be in effect or not."""
SETTLED = CONVERGENCE + 0.5
"""Seconds after a change at which it is probed when it must be in effect."""
AFTER_A_FAULT = (SETTLED, 12.0, 24.0)
"""Seconds after a fault at which what it hid may have to be in effect."""
PROBES = 2
"""Probes of such a moment, but in calm."""
SETTLED_PROBES, CALM_PROBES = 4, 16
"""Probes of such a moment: among faults and other changes, and in calm, where they tell most."""
QUIET_PROBES = 60
"""Probes when nothing has changed for a while: before the calm, whose first change makes good what was missed, and after each
of the last faults, most of these of the change that came during it."""
FLOWS = 6
FLOWS_ACROSS, TRIED = 2, 20
"""UDP flows that go on across a last fault of writes, and flows that are drawn to find such ones."""
REACHED_AT_SENDERS_NODE = frozenset({TargetKind.CLUSTER_IP, TargetKind.EXTERNAL_IP, TargetKind.VIP})
FLOW_PAUSES = (1.0, 2.0, 3.0)
"""Seconds between two exchanges on a flow."""
BUSY_PAUSES = (0.05, 0.1, 0.2)
"""Seconds between two of them while a change takes effect: so that some fall between the steps of a slow sync."""


def draw_probes(
    choose: Chooser, schedule: Schedule, recovered: float, quiet: Iterable[tuple[float, TimedChange]]
) -> Iterator[TimedProbe]:
    """Probes of what a change is about, and of anything: around each change, after each fault, before the calm, and at the end.

    ``recovered``: time by which all that came before the calm must be in effect; ``quiet``: times by which the change must be.
    """
    for change in schedule.changes:
        is_calm = change.at > recovered
        for moment in dict.fromkeys((change.at, change.done)):
            for after in AFTER_A_CHANGE * (1 if is_calm else PROBES):
                yield _probe_of(choose, schedule, round(moment + after, 6), change)
        for _ in range(CALM_PROBES if is_calm else SETTLED_PROBES):
            yield _probe_of(choose, schedule, round(change.done + SETTLED, 6), change)
    for fault in schedule.faults:
        for after in (*AFTER_A_CHANGE * PROBES, *AFTER_A_FAULT * SETTLED_PROBES):
            yield _probe(choose, schedule, round(fault.end + after, 6))
    for number in range(QUIET_PROBES):
        yield _probe(choose, schedule, round(recovered + 0.05 * number, 6))
        for moment, change in quiet:
            yield _probe_of(choose, schedule, round(moment + 0.05 * number, 6), change)


def draw_probes_of_all(choose: Chooser, schedule: Schedule, at: float) -> Iterator[TimedProbe]:
    """Probes of anything, when nothing has changed for a while."""
    for number in range(QUIET_PROBES):
        yield _probe(choose, schedule, round(at + 0.05 * number, 6))


def draw_flows(choose: Chooser, schedule: Schedule) -> Iterator[TimedFlow]:
    """Flows to Services of the beginning, from when these have settled, or from a later change on."""
    for _ in range(FLOWS):
        later = choose((True, False, False)) and len(schedule.changes) > 1
        at = choose(schedule.changes[1:]).at if later else CONVERGENCE
        sent = _probe(choose, schedule, at)
        yield TimedFlow(
            at=sent.at,
            sender=sent.sender,
            to=sent.to,
            pause=choose(FLOW_PAUSES),
            busy_pause=choose(BUSY_PAUSES),
        )


def draw_udp_flows_across(
    choose: Chooser, schedule: Schedule, fault: TimedFault, change: TimedChange
) -> Iterator[TimedFlow]:
    """UDP flows to what a change is about, begun when all before it is in effect, from the node that a fault of writes is on.

    So datagrams fall between the steps of a slow sync: between the removal of an old entry and of the rules that make it anew.
    """
    names = {service.name for service in _services_of(change)}
    there = {form.name: form for form in forms_until(schedule, fault.at)}
    udp = [(service, _udp_ports(service)) for service in there.values() if service.name in names]
    reached = [
        (sender, target)
        for service, ports in udp
        for sender, target in (generate_flow(choose, service) for _ in range(TRIED))
        if target.port in ports and target.kind in REACHED_AT_SENDERS_NODE and fault.node in {"", sender.node}
    ]
    for sender, target in reached[:FLOWS_ACROSS]:
        yield TimedFlow(at=round(fault.at - 1.0, 6), sender=sender, to=target, pause=1.0, busy_pause=0.05)


def _services_of(change: TimedChange) -> Sequence[CaseService]:
    match change.step:
        case Apply(services=services):
            return services
        case Delete(service=service):
            return (service,)
        case _:
            return ()


def _udp_ports(service: CaseService) -> frozenset[str]:
    return frozenset(port.name for port in service.ports if port.protocol is Protocol.UDP)


def draw_checks(choose: Chooser, schedule: Schedule) -> Iterator[TimedCheck]:
    """Requests to health ports: soon after each change, and when it must be in effect."""
    for change in schedule.changes:
        for after in (choose(AFTER_A_CHANGE), SETTLED):
            for node in NODES:
                at = round(change.done + after, 6)
                sender = choose((host(node), client(node)))
                yield TimedCheck(at=at, sender=sender, node=node)
                to = choose(forms_until(schedule, change.at)).health_check(node)
                yield TimedCheck(at=at, sender=sender, node=node, to=to)


def _probe(choose: Chooser, schedule: Schedule, at: float) -> TimedProbe:
    """Probe of a Service that a change before it declares, as it is or was."""
    sender, to = generate_flow(choose, choose(forms_until(schedule, at)))
    return TimedProbe(at=at, sender=sender, to=to)


def _probe_of(choose: Chooser, schedule: Schedule, at: float, change: TimedChange) -> TimedProbe:
    """Probe of what a change is about, more often than not: a Service as it is then, or one with hints for a node's zone."""
    if not choose((True, True, True, False)):
        return _probe(choose, schedule, at)
    latest = {form.name: form for form in forms_until(schedule, change.at)}
    match change.step:
        case Apply(services=services):
            about = [latest[service.name] for service in services]
        case Delete(service=service):
            about = [latest[service.name]]
        case _:
            hinted = [form for form in latest.values() if any(one.zones for one in form.endpoints)]
            about = hinted or list(latest.values())
    sender, to = generate_flow(choose, choose(about))
    return TimedProbe(at=at, sender=sender, to=to)


def forms_until(schedule: Schedule, at: float) -> list[CaseService]:
    """Forms that Services have had up to a time, the latest last."""
    return [
        service
        for change in schedule.changes
        if change.at <= at and isinstance(change.step, Apply)
        for service in change.step.services
    ]
