"""Universes of subjects that do not claim every feature."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy.conformance.case import Apply, CaseService, Feature, TargetKind
from kproxy.conformance.subjects.subject import load_subject
from kproxy.model.network import Family
from kproxy.universes.claims import FAULTS, claimed_part
from kproxy.universes.command import excuses
from kproxy.universes.draw import draw_schedule
from kproxy.universes.schedule import FaultKind, Schedule

FINDINGS = Path(__file__).parents[3] / "docs/findings"
ALL = frozenset(Feature)
DRAWN = [draw_schedule(seed) for seed in range(40)]


def services(schedule: Schedule) -> Iterator[CaseService]:
    for change in schedule.changes:
        yield from change.step.services if isinstance(change.step, Apply) else ()


def targets(schedule: Schedule) -> Iterator[TargetKind]:
    yield from (probe.to.kind for probe in schedule.probes)
    yield from (flow.to.kind for flow in schedule.flows)


def kinds(schedule: Schedule) -> Iterator[FaultKind]:
    yield from (fault.kind for fault in schedule.faults)


NEEDS: dict[Feature, Callable[[Schedule], bool]] = {
    Feature.SOURCE_RANGES: lambda it: any(one.source_ranges for one in services(it)),
    Feature.INTERNAL_TRAFFIC_POLICY: lambda it: any(one.internal_policy for one in services(it)),
    Feature.EXTERNAL_TRAFFIC_POLICY: lambda it: any(one.external_policy for one in services(it)),
    Feature.SESSION_AFFINITY: lambda it: any(one.affinity_seconds for one in services(it)),
    Feature.INCOMPLETE_ENDPOINT_PORTS: lambda it: any(one.slice_ports for one in services(it)),
    Feature.TOPOLOGY_HINTS: lambda it: any(e.zones or e.nodes for one in services(it) for e in one.endpoints),
    Feature.TERMINATING_ENDPOINTS: lambda it: any(
        e.terminating for one in services(it) for e in one.endpoints
    ),
    Feature.NODE_PORT: lambda it: any(kind.name.startswith("NODE_PORT") for kind in targets(it)),
    Feature.EXTERNAL_IPS: lambda it: TargetKind.EXTERNAL_IP in targets(it),
    Feature.LOAD_BALANCER: lambda it: TargetKind.VIP in targets(it),
    Feature.HEALTH_CHECKS: lambda it: any(check.to for check in it.checks),
    Feature.PROXY_HEALTH: lambda it: any(not check.to for check in it.checks),
    Feature.IPV6: lambda it: it.family is Family.IPV6,
    Feature.RESTART: lambda it: FaultKind.PROXY_KILLED in kinds(it),
    Feature.MODE_CHANGE: lambda it: FaultKind.MODE_CHANGED in kinds(it),
    Feature.REFUSED_WRITES: lambda it: FaultKind.WRITES_REFUSED in kinds(it),
    Feature.FLUSHED_RULES: lambda it: FaultKind.RULES_LOST in kinds(it),
}


@pytest.mark.parametrize("feature", NEEDS)
def test_what_needs_a_feature_is_played_where_it_is_claimed_alone(feature: Feature) -> None:
    claimed = [claimed_part(drawn, ALL) for drawn in DRAWN]
    assert claimed == DRAWN
    assert any(map(NEEDS[feature], claimed))
    without = [claimed_part(drawn, ALL - {feature}) for drawn in DRAWN]
    assert not any(map(NEEDS[feature], without))
    assert any(schedule.probes for schedule in without)


def test_each_feature_that_bears_on_faults_is_tried() -> None:
    assert set(FAULTS.values()) <= set(NEEDS)


@pytest.mark.parametrize("name", ["kproxy", "kube-proxy"])
def test_subjects_that_claim_all_of_it_play_schedules_as_drawn(name: str) -> None:
    subject = load_subject(name, "/bin/true")
    for mode in subject.modes:
        assert [claimed_part(one, subject.claimed_features(mode)) for one in DRAWN] == DRAWN


def test_kube_router_plays_what_its_subject_file_for_universes_claims() -> None:
    subject = load_subject(str(FINDINGS / "kube-router.toml"), "/bin/true")
    excuses(subject, "ipvs")
    claimed = [claimed_part(drawn, subject.claimed_features("ipvs")) for drawn in DRAWN]
    wanted = {TargetKind.CLUSTER_IP, TargetKind.EXTERNAL_IP, TargetKind.VIP}
    assert {kind for schedule in claimed for kind in targets(schedule)} == wanted
    assert {schedule.family for schedule in claimed} == {Family.IPV4}


def test_the_core_alone_leaves_cluster_ips() -> None:
    for drawn in DRAWN:
        core = claimed_part(drawn, frozenset())
        assert set(targets(core)) == {TargetKind.CLUSTER_IP}
        assert len(core.changes) == len(drawn.changes)
