"""``/healthz`` and ``/livez``: status of the rules, and whether the node is eligible for new traffic.

Beside the pipe: reads the progress of `kproxy.proxy.daemon.sync.family_sync` and the Node from
`kproxy.proxy.daemon.cluster.store`. Behaviours ``hz.*``; https://kubernetes.io/docs/reference/networking/virtual-ips/
and KEP-3836.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec

from kproxy.model.api import Node
from kproxy.model.network import Family
from kproxy.proxy.daemon.http.protocol import NOT_FOUND, HttpRequest, HttpResponse
from kproxy.proxy.daemon.sync.family_sync import SyncProgress

DELETION_TAINT = "ToBeDeletedByClusterAutoscaler"

_NEVER = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class FamilyHealth:
    """Progress of one family: seconds since the kernel was last up to date (None: never), and since a change waits for it."""

    updated: float | None
    waiting: float | None


class _Status(msgspec.Struct, rename="camel"):
    last_updated: str
    healthy: bool


class _Payload(msgspec.Struct, rename="camel", omit_defaults=True):
    last_updated: str
    current_time: str
    healthy: bool
    status: dict[str, _Status]
    node_eligible: bool | None = None


def livez(families: Mapping[Family, FamilyHealth], stale_after: float, now: float) -> HttpResponse:
    """Response of ``/livez``: 503 if any change has waited ``stale_after`` seconds (``proxy-health.late.told``).

    ``now`` is seconds since the epoch.
    """
    return _answer(families, stale_after, now)


def healthz(
    families: Mapping[Family, FamilyHealth], stale_after: float, now: float, node: Node | None
) -> HttpResponse:
    """Response of ``/healthz``: as `livez`, and 503 also when the node is about to be removed.

    Clause ``proxy-health.leaving-node.told``.
    """
    return _answer(families, stale_after, now, node_eligible=is_eligible(node))


def is_eligible(node: Node | None) -> bool:
    """True if load balancers may send the node new connections."""
    if node is None or node.metadata.deletion_timestamp is not None:
        return False
    return all(taint.key != DELETION_TAINT for taint in node.spec.taints or ())


def _answer(
    families: Mapping[Family, FamilyHealth],
    stale_after: float,
    now: float,
    *,
    node_eligible: bool | None = None,
) -> HttpResponse:
    """Response with the payload of ``hz.payload``.

    With 200, ``lastUpdated`` is now (``proxy-health.told``), else the time of the most recent update of any
    family. ``healthy``
    concerns the proxy alone, not the node.
    """
    status = {family.value: _status(state, stale_after, now) for family, state in families.items()}
    healthy = all(state.healthy for state in status.values())
    well = healthy and node_eligible is not False
    ages = [state.updated for state in families.values() if state.updated is not None]
    last = _updated(0.0 if well else min(ages, default=None), now)
    payload = _Payload(last, _timestamp(now), healthy, status, node_eligible)
    return HttpResponse(
        HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE, msgspec.json.encode(payload)
    )


def _status(state: FamilyHealth, stale_after: float, now: float) -> _Status:
    return _Status(_updated(state.updated, now), healthy=not _is_stale(state, stale_after))


def _is_stale(state: FamilyHealth, stale_after: float) -> bool:
    return state.waiting is not None and state.waiting >= stale_after


def _updated(age: float | None, now: float) -> str:
    return _NEVER if age is None else _timestamp(now - age)


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Health:
    """Handler of health probes, from the progress of the families that run; ``clock``: the one that dates `SyncProgress`.

    ``count`` is called with each probe's path and status (``hz.counters``).
    """

    families: Mapping[Family, SyncProgress]
    stale_after: float
    node: Callable[[], Node | None]
    clock: Callable[[], float]
    count: Callable[[str, HTTPStatus], None] = lambda _path, _status: None

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Response to a probe."""
        match request.path:
            case "/healthz":
                answer = healthz(self._states(), self.stale_after, time.time(), self.node())
            case "/livez":
                answer = livez(self._states(), self.stale_after, time.time())
            case _:
                return NOT_FOUND
        self.count(request.path, answer.status)
        return answer

    def up_to_date(self) -> bool:
        """True if no change has waited too long, whatever the state of the node.

        Clause ``health-check.late-proxy.told``.
        """
        return all(not _is_stale(state, self.stale_after) for state in self._states().values())

    def _states(self) -> dict[Family, FamilyHealth]:
        now = self.clock()
        return {
            family: FamilyHealth(
                _age(progress.updated_at, now), _age(progress.subscription.waiting_since, now)
            )
            for family, progress in self.families.items()
        }


def _age(since: float | None, now: float) -> float | None:
    return None if since is None else now - since
