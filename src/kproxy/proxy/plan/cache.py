"""What one planning remembers for the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kproxy.model.api import Key
from kproxy.model.network import Address, Protocol
from kproxy.proxy.snapshot import Note, ServiceInfo

if TYPE_CHECKING:
    from kproxy.proxy.plan.values import PlanSettings, ServicePlan

Claim = tuple[Address | None, int, Protocol]
"""What only one Service can have: address (None: node port), port and protocol."""


@dataclass(frozen=True, slots=True)
class FrontendClaims:
    """Who wants what; ``conflicts`` is what several Services want."""

    claimants: Mapping[Claim, tuple[Key, ...]] = field(default_factory=dict)
    conflicts: frozenset[Claim] = frozenset()


@dataclass(frozen=True, slots=True)
class PlanCache:
    """The input of a plan and its intermediate values.

    ``per_service`` are what each Service would get if it were alone, in the order of ``services``; ``notes``
    what they had to tell.  ``resolved`` holds the plans of those that do not get all they claim.
    """

    services: Mapping[Key, ServiceInfo] = field(default_factory=dict)
    settings: PlanSettings | None = None
    per_service: Mapping[Key, tuple[ServicePlan, ...]] = field(default_factory=dict)
    notes: Mapping[Key, tuple[Note, ...]] = field(default_factory=dict)
    claims: FrontendClaims = field(default_factory=FrontendClaims)
    resolved: Mapping[Key, tuple[ServicePlan, ...]] = field(default_factory=dict)
