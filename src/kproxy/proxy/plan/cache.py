"""Cache that one planning leaves for the next. Data only; `kproxy.proxy.plan.planner` fills and reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kproxy.model.api import Key
from kproxy.proxy.snapshot import Note, ServiceInfo

if TYPE_CHECKING:
    from kproxy.proxy.plan.values import FrontendKey, PlanSettings, ServicePlan


@dataclass(frozen=True, slots=True)
class FrontendClaims:
    """Claims of all Services on frontends: the claimants of each, and in ``conflicts`` the frontends with more than one claimant."""

    claimants: Mapping[FrontendKey, tuple[Key, ...]] = field(default_factory=dict)
    conflicts: frozenset[FrontendKey] = frozenset()


@dataclass(frozen=True, slots=True)
class PlanCache:
    """Input of a plan and its intermediate values.

    ``per_service``: each Service's plans without regard to other Services, in the order of ``services``.
    ``resolved``: the reduced plans of Services that lost a conflict; they override ``per_service``.
    ``notes``: by Service, from planning it alone.
    """

    services: Mapping[Key, ServiceInfo] = field(default_factory=dict)
    settings: PlanSettings | None = None
    per_service: Mapping[Key, tuple[ServicePlan, ...]] = field(default_factory=dict)
    notes: Mapping[Key, tuple[Note, ...]] = field(default_factory=dict)
    claims: FrontendClaims = field(default_factory=FrontendClaims)
    resolved: Mapping[Key, tuple[ServicePlan, ...]] = field(default_factory=dict)
