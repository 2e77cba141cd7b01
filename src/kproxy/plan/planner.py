"""Bringing a `Plan` up to date: only Services whose normalised value is another object cost work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from operator import is_

from kproxy.api import Key
from kproxy.plan.claims import settle, updated
from kproxy.plan.frontends import cluster_ip_masquerade, draft
from kproxy.plan.health_checks import health_checks
from kproxy.plan.memo import Memo
from kproxy.plan.node_ports import node_ports
from kproxy.plan.values import Plan, ServicePlan, Settings
from kproxy.state import Note, Snapshot, changed_keys

Plans = tuple[ServicePlan, ...]


def plan(snapshot: Snapshot, settings: Settings, previous: Plan | None = None) -> Plan:
    """What the node of ``settings`` must do for the Services of ``snapshot``, sorted by namespace and name.

    Equal to a fresh computation whatever ``previous`` is.  With the last plan of the same family as
    ``previous``, a `ServicePlan` equal to the one before is the same object, and when all are, so is
    ``services``.  Other settings cost a full computation, unless they concern node ports
    or service CIDRs only.

    Raises ValueError when the settings are of another family than the snapshot.
    """
    if settings.family is not snapshot.family:
        raise ValueError(
            f"settings are for {settings.family.value}, the snapshot for {snapshot.family.value}"
        )
    if previous is None or previous.family is not snapshot.family:
        previous = _nothing(settings)
    memo = _drafted(snapshot, settings, previous.memo)
    settled, losses = settle(memo.claims, memo.drafts)
    memo = replace(memo, settled={k: _kept(_effective(previous.memo, k), v) for k, v in settled.items()})
    return Plan(
        family=snapshot.family,
        services=_same(previous.services, chain.from_iterable({**memo.drafts, **memo.settled}.values())),
        node_ports=node_ports(settings),
        detector=settings.detector,
        cluster_ips=cluster_ip_masquerade(settings),
        service_cidrs=settings.service_cidrs,
        health_checks=health_checks(snapshot, settings.node),
        notes=(
            *settings.notes,
            *snapshot.notes,
            *chain.from_iterable(memo.notes[key] for key in sorted(memo.notes)),
            *losses,
        ),
        memo=memo,
    )


def _nothing(settings: Settings) -> Plan:
    """What is known before the first plan."""
    return Plan(
        family=settings.family,
        services=(),
        node_ports=node_ports(settings),
        detector=settings.detector,
        cluster_ips=cluster_ip_masquerade(settings),
    )


def _drafted(snapshot: Snapshot, settings: Settings, memo: Memo) -> Memo:
    """The memo with drafts, their notes and their claims as the snapshot has it."""
    policy = _without_node_ports(settings)
    changed = changed_keys(memo.services, snapshot.services)
    if policy != memo.settings:
        changed.update(snapshot.services)
    drafts, notes = dict(memo.drafts), dict(memo.notes)
    for key in changed:
        _redraft(key, snapshot, settings, drafts, notes)
        if key in drafts:
            drafts[key] = _kept(_effective(memo, key), drafts[key])
    if any(key not in memo.drafts for key in changed):
        drafts = {key: drafts[key] for key in snapshot.services}
    return Memo(
        services=snapshot.services,
        settings=policy,
        drafts=drafts,
        notes=notes,
        claims=updated(memo.claims, memo.drafts, drafts, changed),
        settled=memo.settled,
    )


def _redraft(
    key: Key,
    snapshot: Snapshot,
    settings: Settings,
    drafts: dict[Key, Plans],
    notes: dict[Key, tuple[Note, ...]],
) -> None:
    notes.pop(key, None)
    if key not in snapshot.services:
        drafts.pop(key, None)
        return
    plans, remarks = draft(snapshot.services[key], settings)
    drafts[key] = plans
    if remarks:
        notes[key] = remarks


def _without_node_ports(settings: Settings) -> Settings:
    """The settings that matter to a single Service."""
    return replace(
        settings,
        node_addresses=(),
        node_port_cidrs=None,
        localhost_node_ports=True,
        service_cidrs=(),
        notes=(),
    )


def _effective(memo: Memo, key: Key) -> Plans:
    """A Service's plans as they were given out: settled with other Services where that was needed."""
    return memo.settled.get(key) or memo.drafts.get(key, ())


def _kept(before: Plans, after: Plans) -> Plans:
    """``after`` with what is equal in ``before`` replaced by it."""
    known = {(plan.name, plan.protocol): plan for plan in before}
    merged = [plan if (old := known.get((plan.name, plan.protocol))) != plan else old for plan in after]
    return _same(before, merged)


def _same(before: Plans, after: Iterable[ServicePlan]) -> Plans:
    """``after``, or ``before`` itself when it holds the same objects."""
    made = tuple(after)
    return before if len(made) == len(before) and all(map(is_, made, before)) else made
