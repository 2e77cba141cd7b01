"""Scheduler of one family's syncs, as a value: what is due next, and when.

Theory of operation
-------------------
Work has four causes: a change of the cluster, a failed sync, a period that has passed, and drift.  `SyncScheduler` holds when each
last happened; each ``record_*`` method returns the state after an event, and `SyncScheduler.due` returns the earliest action.

* A change is synced once changes have rested for ``settle_time``, at the latest ``max_settle_time`` after the first: one event at
  the API server often arrives as several changes from several watches.
* No sync begins earlier than ``min_sync_period`` after the last one that wrote or failed.
* A failed sync or repair is repeated after ``first_retry``, then after twice as long each time; the wait is at most ``sync_period``.
* The kernel is checked when it reports something, every ``drift_check_period`` where a check is cheap, else every ``sync_period``.
  Every ``sync_period`` a check is thorough, however many others come between.
* Drift is repaired at once.  If the repair does not last, the next one waits, twice as long each time: two proxies that undo
  each other's rules would otherwise do nothing else.

Used by `kproxy.proxy.daemon.sync.family_sync`, which owns the clock.  Pure: every time is an argument, in seconds on any
monotonic clock.  Clauses ``watch.changes-together.last-counts``, ``change.in-effect-soon``,
``writes.refused.tried-again``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from kproxy.proxy.daemon.cluster.store import Pending


class Action(enum.Enum):
    """Action that a family's loop takes next."""

    SYNC = "sync"
    CHECK = "check"
    """Check whether the kernel still holds what was written."""
    REPAIR = "repair"
    """Write everything again, since another process changed it."""


FIRST_REPAIR_WAIT, LONGEST_REPAIR_WAIT = 1.0, 60.0
"""Bounds in seconds of the exponential backoff between repairs that another process undoes."""

REPAIR_LASTED = 2 * LONGEST_REPAIR_WAIT
"""A repair has lasted when no drift follows within this many seconds.

Twice the longest wait: two proxies that undo each other's rules each wait so long, and the pause of one must not count
as a lasting repair of the other."""


@dataclass(frozen=True, slots=True)
class Due:
    """Next action and its time; a time in the past means now."""

    at: float
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPeriods:
    """Periods of the scheduler, in seconds.

    ``min_sync_period`` is the least time from the end of one sync to the next (minSyncPeriod), ``sync_period`` the time
    between two checks of the kernel, and the longest wait after a failed sync (syncPeriod).  A sync waits until
    no change has arrived for ``settle_time``, but at most ``max_settle_time`` after the first: one event at the API server
    often comes as several changes, from several watches.  ``drift_check_period``: the time between two checks of the kernel,
    where that is not ``sync_period``; ``notified_check_period``: the least time between two, when the kernel has reported something.
    """

    min_sync_period: float
    sync_period: float
    settle_time: float = 0.01
    max_settle_time: float = 0.03
    first_retry: float = 0.5
    drift_check_period: float | None = None
    notified_check_period: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncScheduler:
    """State of the scheduler: times of past events; each ``record_*`` method returns the state after an event."""

    periods: SyncPeriods
    ended_at: float | None = None
    """End of the last sync that wrote to the kernel or failed to."""
    failures: int = 0
    """Failed syncs in a row."""
    checked_at: float | None = None
    """Time of the last check of the kernel; a first sync counts."""
    checked_thoroughly_at: float = float("-inf")
    """Time of the last thorough check; a first sync counts."""
    notified: bool = False
    """The kernel has reported something since that check."""
    sync_requested_at: float | None = None
    """Time of the first pending request for a sync that is no change of the cluster."""
    drifted_at: float | None = None
    """Time at which unrepaired drift was found."""
    repaired_at: float | None = None
    """Time of the last repair of drift."""
    repairs: int = 0
    """Repairs in a row that did not last."""

    def due(self, pending: Pending | None) -> Due:
        """Next action, given the pending changes."""
        if self.checked_at is None:
            return Due(float("-inf"), Action.SYNC)
        check = Due(min(self.checked_at + self._check_period(), self._next_thorough_check), Action.CHECK)
        sync = min(
            (at for at in (self._change(pending), self.sync_requested_at, self._retry()) if at is not None),
            default=None,
        )
        candidates = [check]
        if sync is not None:
            candidates.append(Due(max(sync, self._earliest()), Action.SYNC))
        if self.drifted_at is not None:
            retry = self._retry() or float("-inf")
            candidates.append(Due(max(self.next_repair, self._earliest(), retry), Action.REPAIR))
        return min(reversed(candidates), key=lambda due: due.at)

    def request_sync(self, now: float) -> SyncScheduler:
        """A sync was requested, at the earliest time allowed."""
        return self if self.sync_requested_at is not None else replace(self, sync_requested_at=now)

    def record_drift(self, now: float) -> SyncScheduler:
        """Drift was found: a repair is due, the later the more repairs in a row did not last."""
        if self.drifted_at is not None:
            return self
        lasted = self.repaired_at is None or now - self.repaired_at > REPAIR_LASTED
        return replace(self, drifted_at=now, repairs=0 if lasted else self.repairs)

    @property
    def next_repair(self) -> float:
        """Time of the next repair; infinity without drift."""
        if self.drifted_at is None:
            return float("inf")
        if self.repaired_at is None or not self.repairs:
            return self.drifted_at
        wait = min(LONGEST_REPAIR_WAIT, FIRST_REPAIR_WAIT * 2.0 ** min(self.repairs - 1, 30))
        return max(self.drifted_at, self.repaired_at + wait)

    def record_notification(self) -> SyncScheduler:
        """The kernel reported something that a check looks at."""
        return replace(self, notified=True)

    def is_thorough_check_due(self, now: float) -> bool:
        """True if a check at this time must be a thorough one."""
        return now >= self._next_thorough_check

    def record_check(self, now: float) -> SyncScheduler:
        """The kernel was checked, and thoroughly if that was due."""
        thorough_at = now if self.is_thorough_check_due(now) else self.checked_thoroughly_at
        return replace(self, checked_at=now, checked_thoroughly_at=thorough_at, notified=False)

    def record_write(self, now: float, *, full: bool = False) -> SyncScheduler:
        """A sync succeeded and wrote to the kernel; ``full``: everything, so drift is repaired."""
        wrote = replace(self.record_noop(now), ended_at=now)
        if not full or self.drifted_at is None:
            return wrote
        return replace(wrote, drifted_at=None, repaired_at=now, repairs=self.repairs + 1)

    def record_noop(self, now: float) -> SyncScheduler:
        """A sync succeeded and had nothing to write: it delays no other."""
        return replace(self._attempted(now), failures=0)

    def record_failure(self, now: float) -> SyncScheduler:
        """A sync failed."""
        return replace(self._attempted(now), ended_at=now, failures=self.failures + 1)

    def _attempted(self, now: float) -> SyncScheduler:
        """State after a sync that succeeded or failed; before the first there is nothing to check."""
        tried = replace(self, sync_requested_at=None)
        return replace(tried, checked_at=now, checked_thoroughly_at=now) if self.checked_at is None else tried

    @property
    def _next_thorough_check(self) -> float:
        return self.checked_thoroughly_at + self.periods.sync_period

    def _check_period(self) -> float:
        period = self.periods.drift_check_period or self.periods.sync_period
        return min(period, self.periods.notified_check_period) if self.notified else period

    def _change(self, pending: Pending | None) -> float | None:
        if pending is None:
            return None
        return min(pending.last + self.periods.settle_time, pending.first + self.periods.max_settle_time)

    def _retry(self) -> float | None:
        if not self.failures or self.ended_at is None:
            return None
        return self.ended_at + min(
            self.periods.sync_period, self.periods.first_retry * 2.0 ** min(self.failures - 1, 30)
        )

    def _earliest(self) -> float:
        return float("-inf") if self.ended_at is None else self.ended_at + self.periods.min_sync_period
