"""Incremental planning: brings a `Plan` up to date; only Services whose normalised value is another object cost work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from operator import is_

from kproxy.model.api import Key
from kproxy.proxy.plan.cache import PlanCache
from kproxy.proxy.plan.conflicts import resolve_conflicts, update_claims
from kproxy.proxy.plan.frontends import masquerade_of_cluster_ips, plan_service
from kproxy.proxy.plan.health_checks import health_checks
from kproxy.proxy.plan.node_ports import node_ports
from kproxy.proxy.plan.values import Plan, PlanSettings, ServicePlan
from kproxy.proxy.snapshot import Note, Snapshot, changed_keys

Plans = tuple[ServicePlan, ...]


def make_plan(snapshot: Snapshot, settings: PlanSettings, previous: Plan | None = None) -> Plan:
    """Plan of the node of ``settings`` for the Services of ``snapshot``, sorted by namespace and name.

    Equal to a fresh computation whatever ``previous`` is. With the last plan of the same family as
    ``previous``, a `ServicePlan` equal to the one before is the same object, and when all are, so is
    ``services``. Other settings cost a full computation, unless they concern node ports or service CIDRs
    only.

    Raises ValueError when the settings are of another family than the snapshot.
    """
    if settings.family is not snapshot.family:
        raise ValueError(
            f"settings are for {settings.family.value}, the snapshot for {snapshot.family.value}"
        )
    if previous is None or previous.family is not snapshot.family:
        previous = _empty_plan(settings)
    cache = _update_per_service(snapshot, settings, previous.cache)
    resolved, conflict_notes = resolve_conflicts(cache.claims, cache.per_service)
    cache = replace(cache, resolved={k: _kept(_effective(previous.cache, k), v) for k, v in resolved.items()})
    return Plan(
        family=snapshot.family,
        services=_same(
            previous.services, chain.from_iterable({**cache.per_service, **cache.resolved}.values())
        ),
        node_ports=node_ports(settings),
        detector=settings.detector,
        cluster_ip_masquerade=masquerade_of_cluster_ips(settings),
        service_cidrs=settings.service_cidrs,
        health_checks=health_checks(snapshot, settings.node),
        notes=(
            *settings.notes,
            *snapshot.notes,
            *chain.from_iterable(cache.notes[key] for key in sorted(cache.notes)),
            *conflict_notes,
        ),
        cache=cache,
    )


def _empty_plan(settings: PlanSettings) -> Plan:
    """Plan without Services, the start of the first planning."""
    return Plan(
        family=settings.family,
        services=(),
        node_ports=node_ports(settings),
        detector=settings.detector,
        cluster_ip_masquerade=masquerade_of_cluster_ips(settings),
    )


def _update_per_service(snapshot: Snapshot, settings: PlanSettings, cache: PlanCache) -> PlanCache:
    """Cache with each changed Service's plans, notes and claims updated from the snapshot."""
    policy = _without_node_ports(settings)
    changed = changed_keys(cache.services, snapshot.services)
    if policy != cache.settings:
        changed.update(snapshot.services)
    per_service, notes = dict(cache.per_service), dict(cache.notes)
    for key in changed:
        _replan(key, snapshot, settings, per_service, notes)
        if key in per_service:
            per_service[key] = _kept(_effective(cache, key), per_service[key])
    if any(key not in cache.per_service for key in changed):
        per_service = {key: per_service[key] for key in snapshot.services}
    return PlanCache(
        services=snapshot.services,
        settings=policy,
        per_service=per_service,
        notes=notes,
        claims=update_claims(cache.claims, cache.per_service, per_service, changed),
        resolved=cache.resolved,
    )


def _replan(
    key: Key,
    snapshot: Snapshot,
    settings: PlanSettings,
    per_service: dict[Key, Plans],
    notes: dict[Key, tuple[Note, ...]],
) -> None:
    notes.pop(key, None)
    if key not in snapshot.services:
        per_service.pop(key, None)
        return
    plans, own_notes = plan_service(snapshot.services[key], settings)
    per_service[key] = plans
    if own_notes:
        notes[key] = own_notes


def _without_node_ports(settings: PlanSettings) -> PlanSettings:
    """Settings that matter to a single Service."""
    return replace(
        settings,
        node_addresses=(),
        node_port_cidrs=None,
        localhost_node_ports=True,
        service_cidrs=(),
        notes=(),
    )


def _effective(cache: PlanCache, key: Key) -> Plans:
    """A Service's plans as published: the reduced ones where it lost a conflict."""
    return cache.resolved.get(key) or cache.per_service.get(key, ())


def _kept(before: Plans, after: Plans) -> Plans:
    """``after``, with each plan that has an equal in ``before`` replaced by that object."""
    known = {(plan.name, plan.protocol): plan for plan in before}
    merged = [plan if (old := known.get((plan.name, plan.protocol))) != plan else old for plan in after]
    return _same(before, merged)


def _same(before: Plans, after: Iterable[ServicePlan]) -> Plans:
    """``after``, or ``before`` itself when it holds the same objects."""
    made = tuple(after)
    return before if len(made) == len(before) and all(map(is_, made, before)) else made
