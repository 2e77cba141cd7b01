"""The part of a schedule that a subject claims to handle: what it leaves out is no failure, so it is not played.  Pure.

A seed gives two subjects that claim the same features the same universe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kproxy.conformance.case import Apply, CaseService, Delete, Feature, Target, TargetKind
from kproxy.model.network import Family
from kproxy.universes.schedule import ChangeStep, FaultKind, Schedule, TimedCheck

FIELDS: Mapping[Feature, Mapping[str, object]] = {
    Feature.SOURCE_RANGES: {"source_ranges": ()},
    Feature.INTERNAL_TRAFFIC_POLICY: {"internal_policy": None},
    Feature.EXTERNAL_TRAFFIC_POLICY: {"external_policy": None},
    Feature.SESSION_AFFINITY: {"affinity_seconds": None},
    Feature.INCOMPLETE_ENDPOINT_PORTS: {"slice_ports": None},
}
"""Fields of a Service as they are without a feature."""
ENDPOINT_FIELDS: Mapping[Feature, Mapping[str, object]] = {
    Feature.TOPOLOGY_HINTS: {"zones": (), "nodes": ()},
    Feature.TERMINATING_ENDPOINTS: {"serving": None, "terminating": None},
}
"""Fields of an endpoint as they are without a feature."""
TARGETS: Mapping[TargetKind, Feature] = {
    TargetKind.NODE_PORT: Feature.NODE_PORT,
    TargetKind.NODE_PORT_SECOND: Feature.NODE_PORT,
    TargetKind.NODE_PORT_LOCALHOST: Feature.NODE_PORT,
    TargetKind.EXTERNAL_IP: Feature.EXTERNAL_IPS,
    TargetKind.VIP: Feature.LOAD_BALANCER,
}
"""Targets that need a feature."""
FAULTS: Mapping[FaultKind, Feature] = {
    FaultKind.PROXY_KILLED: Feature.RESTART,
    FaultKind.PROXY_RESTARTED: Feature.RESTART,
    FaultKind.PROXY_CRASHED: Feature.RESTART,
    FaultKind.MODE_CHANGED: Feature.MODE_CHANGE,
    FaultKind.WRITES_REFUSED: Feature.REFUSED_WRITES,
    FaultKind.MEMORY_SHORT: Feature.REFUSED_WRITES,
    FaultKind.RULES_LOST: Feature.FLUSHED_RULES,
}
"""Faults that need a feature."""


def claimed_part(schedule: Schedule, features: frozenset[Feature]) -> Schedule:
    """The schedule with what needs no other features."""

    def is_claimed(target: Target) -> bool:
        return TARGETS.get(target.kind) in {None, *features}

    def is_claimed_check(check: TimedCheck) -> bool:
        return (Feature.HEALTH_CHECKS if check.to else Feature.PROXY_HEALTH) in features

    return replace(
        schedule,
        family=schedule.family if Feature.IPV6 in features else Family.IPV4,
        changes=tuple(
            replace(change, step=_claimed_step(change.step, features)) for change in schedule.changes
        ),
        faults=tuple(fault for fault in schedule.faults if FAULTS.get(fault.kind) in {None, *features}),
        probes=tuple(probe for probe in schedule.probes if is_claimed(probe.to)),
        flows=tuple(flow for flow in schedule.flows if is_claimed(flow.to)),
        checks=tuple(filter(is_claimed_check, schedule.checks)),
    )


def _claimed_step(step: ChangeStep, features: frozenset[Feature]) -> ChangeStep:
    match step:
        case Apply(services=services):
            return Apply(*(_claimed_service(one, features) for one in services))
        case Delete(service=service):
            return replace(step, service=_claimed_service(service, features))
        case _:
            return step


def _claimed_service(service: CaseService, features: frozenset[Feature]) -> CaseService:
    of_endpoints = _without(ENDPOINT_FIELDS, features)
    endpoints = tuple(replace(one, **of_endpoints) for one in service.endpoints)  # type: ignore[arg-type]
    if Feature.TERMINATING_ENDPOINTS not in features:  # the condition that is left is always written
        endpoints = tuple(replace(one, ready=one.ready is not False) for one in endpoints)
    return service.replace(endpoints=endpoints, **_without(FIELDS, features))


def _without(
    fields: Mapping[Feature, Mapping[str, object]], features: frozenset[Feature]
) -> dict[str, object]:
    return {
        name: value
        for feature, of_feature in fields.items()
        if feature not in features
        for name, value in of_feature.items()
    }
