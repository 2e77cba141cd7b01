"""Conflicts between Services over one address, port and protocol: one Service keeps it, the others get a note.

The API server keeps cluster IPs and node ports apart, but nothing keeps an external IP or a load balancer's
address from being another Service's, and a backend's maps hold one entry per key. A cluster IP wins over a
load balancer's address, that over an external IP (so that no external IP captures a cluster IP,
CVE-2020-8554); among equals the first by namespace and name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from kproxy.model.api import Key
from kproxy.proxy.plan.cache import FrontendClaims
from kproxy.proxy.plan.values import Exposure, Frontend, FrontendKey, ServicePlan
from kproxy.proxy.snapshot import Note

_RANK = {
    Exposure.CLUSTER_IP: 0,
    Exposure.LOAD_BALANCER: 1,
    Exposure.EXTERNAL_IP: 2,
    Exposure.NODE_PORT: 3,
}

PlansByService = Mapping[Key, tuple[ServicePlan, ...]]


def update_claims(
    claims: FrontendClaims, before: PlansByService, after: PlansByService, changed: Iterable[Key]
) -> FrontendClaims:
    """``claims`` updated for the changed Services; the same object when no Service claims anything else than before."""
    moves = [(key, _changed_claims(before.get(key), after.get(key, ()))) for key in changed]
    if not any(different for _, different in moves):
        return claims
    claimants, contested = dict(claims.claimants), set(claims.conflicts)
    for key, different in moves:
        alone = (key,)
        for claim in different:
            if claimants.setdefault(claim, alone) is alone:  # most by far; hashing an address is slow
                continue
            _toggle(claimants, claim, key)
            if len(claimants.get(claim, ())) > 1:
                contested.add(claim)
            else:
                contested.discard(claim)
    return FrontendClaims(claimants, frozenset(contested))


def resolve_conflicts(
    claims: FrontendClaims, per_service: PlansByService
) -> tuple[dict[Key, tuple[ServicePlan, ...]], tuple[Note, ...]]:
    """Reduced plans of the Services that lose a claim, and a note for each loss."""
    lost: dict[Key, set[FrontendKey]] = {}
    notes: list[Note] = []
    for claim in claims.conflicts:
        winner, *losers = sorted(
            claims.claimants[claim], key=lambda key: (_RANK[_wanted(per_service[key])[claim].exposure], key)
        )
        for loser in losers:
            lost.setdefault(loser, set()).add(claim)
            notes.append(Note("Service", loser, f"{_format_claim(claim)} belongs to {'/'.join(winner)}"))
    settled = {key: tuple(_without(plan, lost[key]) for plan in per_service[key]) for key in lost}
    return settled, tuple(sorted(notes, key=lambda note: (note.key, note.text)))


def _changed_claims(
    before: Iterable[ServicePlan] | None, after: Iterable[ServicePlan]
) -> Collection[FrontendKey]:
    """Claims that are new or withdrawn."""
    if before is None:
        return _wanted(after)
    return _wanted(before).keys() ^ _wanted(after).keys()


def _wanted(plans: Iterable[ServicePlan]) -> dict[FrontendKey, Frontend]:
    return {(f.address, f.port, plan.protocol): f for plan in plans for f in plan.frontends}


def _toggle(claimants: dict[FrontendKey, tuple[Key, ...]], claim: FrontendKey, key: Key) -> None:
    """Add the claimant, or remove it if it is there."""
    present = claimants.get(claim)
    if present is None:
        claimants[claim] = (key,)
        return
    rest = tuple(other for other in present if other != key)
    if rest == present:
        claimants[claim] = (*present, key)
    elif rest:
        claimants[claim] = rest
    else:
        del claimants[claim]


def _without(plan: ServicePlan, lost: set[FrontendKey]) -> ServicePlan:
    kept = tuple(f for f in plan.frontends if (f.address, f.port, plan.protocol) not in lost)
    return plan if len(kept) == len(plan.frontends) else replace(plan, frontends=kept)


def _format_claim(claim: FrontendKey) -> str:
    address, port, protocol = claim
    return f"{protocol.value} {'node port' if address is None else address} {port}"
