"""Scheduler of one family's syncs, as a value: what is due next, and when.

Theory of operation
-------------------
Work has four causes: a change of the cluster, a failed sync, a period that has passed, and drift.  `SyncScheduler` holds when each
last happened; each ``record_*`` method returns the state after an event, and `SyncScheduler.due` returns the earliest action.

* A change is synced once changes have rested for ``settle_time``, at the latest ``max_settle_time`` after the first: one event at
  the API server often arrives as several changes from several watches.
* No sync begins earlier than ``min_sync_period`` after the last one that wrote or failed.
* A failed sync is repeated after ``first_retry``, then after twice as long each time; the wait is at most ``sync_period``.
* The kernel is checked every ``drift_check_period`` where a check is cheap, else every ``sync_period``.
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
    """What to do."""

    SYNC = "sync"
    CHECK = "check"
    """Look whether the kernel still holds what was written."""
    REPAIR = "repair"
    """Write all again, since somebody else changed it."""


FIRST_REPAIR_WAIT, LONGEST_REPAIR_WAIT = 1.0, 60.0
"""Seconds between two repairs, of which the first did not last; doubled for each further one."""

REPAIR_LASTED = 2 * LONGEST_REPAIR_WAIT
"""A repair that nobody undid for so many seconds did last.  Twice the longest wait: two proxies that undo each other's
rules each wait so long, and must not take the other's wait for peace."""


@dataclass(frozen=True, slots=True)
class Due:
    """What to do next, and when; a time that has passed means now."""

    at: float
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPeriods:
    """The bounds, in seconds.

    ``min_sync_period`` is the least time from the end of one sync to the next (minSyncPeriod), ``sync_period`` the time
    between two looks at the kernel, and the most that a failed sync waits (syncPeriod).  A sync waits until
    changes have been ``settle_time`` for so long, but no longer than ``max_settle_time``: one event at the API server
    often comes as several changes, from several watches.  ``drift_check_period``: the time between two looks at the kernel, where
    that shall not be ``sync_period``.
    """

    min_sync_period: float
    sync_period: float
    settle_time: float = 0.01
    max_settle_time: float = 0.03
    first_retry: float = 0.5
    drift_check_period: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncScheduler:
    """What has happened so far, as far as it decides what comes next; each method gives the next state."""

    periods: SyncPeriods
    ended_at: float | None = None
    """End of the last sync that wrote to the kernel or failed to."""
    failures: int = 0
    """Failed syncs in a row."""
    checked_at: float | None = None
    """When the kernel was last looked at; a first sync counts."""
    sync_requested_at: float | None = None
    """Since when a sync is wanted for another reason than a change of the cluster."""
    drifted_at: float | None = None
    """Since when the kernel is known to hold what somebody else wrote."""
    repaired_at: float | None = None
    """When that was last repaired."""
    repairs: int = 0
    """Repairs in a row that did not last."""

    def due(self, pending: Pending | None) -> Due:
        """What to do next, given the changes that wait."""
        if self.checked_at is None:
            return Due(float("-inf"), Action.SYNC)
        check = Due(
            self.checked_at + (self.periods.drift_check_period or self.periods.sync_period), Action.CHECK
        )
        sync = min(
            (at for at in (self._change(pending), self.sync_requested_at, self._retry()) if at is not None),
            default=None,
        )
        candidates = [check]
        if sync is not None:
            candidates.append(Due(max(sync, self._earliest()), Action.SYNC))
        if self.drifted_at is not None:
            candidates.append(Due(max(self.next_repair, self._earliest()), Action.REPAIR))
        return min(reversed(candidates), key=lambda due: due.at)

    def request_sync(self, now: float) -> SyncScheduler:
        """A sync is wanted, as soon as may be."""
        return self if self.sync_requested_at is not None else replace(self, sync_requested_at=now)

    def record_drift(self, now: float) -> SyncScheduler:
        """Somebody else changed what was written; a repair is due, the later the more of them did not last."""
        if self.drifted_at is not None:
            return self
        lasted = self.repaired_at is None or now - self.repaired_at > REPAIR_LASTED
        return replace(self, drifted_at=now, repairs=0 if lasted else self.repairs)

    @property
    def next_repair(self) -> float:
        """When the damage is to be repaired; never, where there is none."""
        if self.drifted_at is None:
            return float("inf")
        if self.repaired_at is None or not self.repairs:
            return self.drifted_at
        wait = min(LONGEST_REPAIR_WAIT, FIRST_REPAIR_WAIT * 2.0 ** min(self.repairs - 1, 30))
        return max(self.drifted_at, self.repaired_at + wait)

    def record_check(self, now: float) -> SyncScheduler:
        """The kernel was looked at."""
        return replace(self, checked_at=now)

    def record_write(self, now: float, *, full: bool = False) -> SyncScheduler:
        """A sync ended well, and wrote to the kernel; ``full``: everything, so that whatever was damaged is repaired."""
        wrote = replace(self.record_noop(now), ended_at=now)
        if not full or self.drifted_at is None:
            return wrote
        return replace(wrote, drifted_at=None, repaired_at=now, repairs=self.repairs + 1)

    def record_noop(self, now: float) -> SyncScheduler:
        """A sync ended well and had nothing to write: it delays no other."""
        checked = now if self.checked_at is None else self.checked_at
        return replace(self, failures=0, sync_requested_at=None, checked_at=checked)

    def record_failure(self, now: float) -> SyncScheduler:
        """A sync failed."""
        checked = now if self.checked_at is None else self.checked_at
        return replace(
            self, ended_at=now, failures=self.failures + 1, sync_requested_at=None, checked_at=checked
        )

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
