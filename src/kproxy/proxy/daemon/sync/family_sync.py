"""Sync loop of one family: take the known cluster, plan, apply, wait for changes or for the time of a check.

The last stage of the daemon, above `kproxy.proxy.daemon.cluster.store` and a backend's kernel.  One thread for each family,
so that a failure in one never delays the other (``writes.refused-in-one-family.other-followed``).  Each sync makes and
compares the whole plan; `normalise`, `make_plan` and the backend see to it that unchanged Services cost nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kproxy.linux.host import HostError
from kproxy.model.api import Cluster, EndpointSlice, Service
from kproxy.model.network import Address, Family
from kproxy.proxy.backends import Applied, Dataplane
from kproxy.proxy.daemon.cluster.store import ClusterStore, Subscription
from kproxy.proxy.daemon.sync.change_times import TriggerTimes
from kproxy.proxy.daemon.sync.pacing import Action, SyncPeriods, SyncScheduler
from kproxy.proxy.plan import Note, Plan, PlanSettings, make_plan
from kproxy.proxy.snapshot import Snapshot, normalise

FULL_SYNC_SECONDS = 3600.0
"""Interval after which all rules are written again, whatever was applied last (``change.in-effect-soon``)."""

log = logging.getLogger(__name__)


class Cleaner(Protocol):
    """Ends connections that contradict a plan (`kproxy.proxy.daemon.sync.conntrack_cleanup.ConntrackCleaner`)."""

    def remove(self, plan: Plan) -> int:
        """Remove connections that contradict the applied plan; returns their number.  Raises `HostError`."""

    def forget(self) -> None:
        """Take no connection for one that the last plan allowed: rules may have been missing since."""


class Observer(Protocol):
    """Observer of one family's syncs; called in the sync's thread, so it must be quick and must not raise."""

    def attempted(self, seconds: float, *, full: bool) -> None:
        """A sync succeeded or failed; ``full``: it was to write everything."""

    def refused(self, *, full: bool) -> None:
        """The kernel refused a write."""

    def applied(self, written: Applied | None, triggers: Sequence[float]) -> None:
        """The kernel is up to date; ``written`` is None if it was so before.

        ``triggers``: times of the applied changes, in seconds since the epoch.
        """

    def cleaned(self, seconds: float, removed: int) -> None:
        """Stale connections were removed."""

    def drifted(self) -> None:
        """Another process changed our rules."""


class NullObserver:
    """An `Observer` that does nothing."""

    def attempted(self, seconds: float, *, full: bool) -> None:
        """Nothing."""

    def refused(self, *, full: bool) -> None:
        """Nothing."""

    def applied(self, written: Applied | None, triggers: Sequence[float]) -> None:
        """Nothing."""

    def cleaned(self, seconds: float, removed: int) -> None:
        """Nothing."""

    def drifted(self) -> None:
        """Nothing."""


@dataclass(slots=True)
class SyncProgress:
    """Progress of one family's sync, as health checks read it; times on the sync's clock."""

    subscription: Subscription
    updated_at: float | None = None
    """When the kernel was last known to be up to date."""


@dataclass(slots=True)
class FamilySync:
    """The loop of one family; `run` is the body of its thread.

    ``settings`` returns the plan's settings for a cluster, and reads the machine's addresses for that.
    ``on_first_sync`` is called once, after the first sync that succeeds; ``on_applied`` with the plan whenever the kernel
    is known to hold it: after each sync and at each check.  ``notifiers`` returns descriptors that are readable when the kernel
    reports what a check looks at.
    """

    family: Family
    store: ClusterStore
    dataplane: Dataplane
    cleaner: Cleaner
    settings: Callable[[Cluster], PlanSettings]
    periods: SyncPeriods
    clock: Callable[[], float]
    on_first_sync: Callable[[], None] = lambda: None
    observer: Observer = field(default_factory=NullObserver)
    on_applied: Callable[[Plan], None] = lambda _: None
    notifiers: Callable[[], Collection[int]] = tuple
    progress: SyncProgress = field(init=False)
    last_applied: Plan | None = None
    """The plan applied last; the kernel may hold another one since, when a write runs or has failed."""
    _scheduler: SyncScheduler = field(init=False)
    _snapshot: Snapshot | None = None
    _plan: Plan | None = None
    _applied: Plan | None = None
    """The plan that the kernel is known to hold."""
    _tracked: Plan | None = None
    """The same, with the endpoints that connection tracking knows."""
    _settings: PlanSettings | None = None
    _rewritten_at: float = 0.0
    _logged_lines: frozenset[str] = frozenset()
    _clean_due: bool = False
    _addresses: frozenset[Address] = frozenset()
    """The node's addresses that Services can be served at, of the settings."""
    _applied_with: frozenset[Address] = frozenset()

    def __post_init__(self) -> None:
        self.progress = SyncProgress(self.store.subscribe(TriggerTimes(self.family, time.time())))
        self._scheduler = SyncScheduler(periods=self.periods)

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes on the objects that the last plan was made from."""
        return self._plan.notes if self._plan else ()

    def run(self) -> None:
        """Sync for ever."""
        self.wait_for_lists()
        while True:
            self.step_safely()

    def step_safely(self) -> None:
        """Run a `step`; an unexpected exception is a failed sync and does not end the thread (``life.panic-safe``)."""
        try:
            self.step()
        except Exception:
            log.exception("%s: what was due failed", self.family.value)
            self._failed(self.clock(), full=self._applied is None)

    def wait_for_lists(self) -> None:
        """Return when Services and EndpointSlices have both been listed (``restart.lists-incomplete.rules-kept``)."""
        feed = self.progress.subscription
        while True:
            seen = feed.pending
            if self.store.listed(Service, EndpointSlice):
                break
            feed.wait(seen, None)
        feed.activate(self.clock())

    def step(self) -> None:
        """Sleep until something is due or something changes; do what is due."""
        feed = self.progress.subscription
        pending = feed.pending
        due = self._scheduler.due(pending)
        now = self.clock()
        if due.at > now:
            watched = () if self._scheduler.notified else self.notifiers()
            if feed.wait(pending, due.at - now, watched):
                self._scheduler = self._scheduler.record_notification()
        else:
            self._perform(due.action)

    def _perform(self, action: Action) -> None:
        match action:
            case Action.CHECK:
                self._check()
            case Action.SYNC:
                self._sync()
            case Action.REPAIR:
                self._forget()
                self._sync()

    def _forget(self) -> None:
        self._applied = None
        self.dataplane.forget()
        self.cleaner.forget()

    def _sync(self) -> None:
        started = self.clock()
        full = self._applied is None
        cluster = self.progress.subscription.take()
        try:
            written = self._bring_up_to_date(cluster)
        except HostError as error:
            log.error("%s: sync failed: %s", self.family.value, error)  # noqa: TRY400 - the reason is all there is
            self._failed(started, full=full)
            return
        except Exception:  # ``life.panic-safe``: whatever one input does, the next may be better
            log.exception("%s: sync failed", self.family.value)
            self._snapshot = self._plan = None
            self._failed(started, full=full)
            return
        self._succeeded(written, self.clock() - started)

    def _bring_up_to_date(self, cluster: Cluster) -> Applied | None:
        """Plan and apply; returns what was written, None when the kernel holds this plan already.

        A dataplane may depend on the node's addresses where the plan does not: virtual servers for node ports, or endpoints
        that are the node itself.
        """
        before, self._settings = self._settings, self.settings(cluster)
        found = self._settings.node_addresses
        if before is None or found is not before.node_addresses:
            self._addresses = frozenset(one for one in found if not (one.is_link_local or one.is_loopback))
        self._snapshot = normalise(cluster, self.family, self._snapshot)
        plan = self._plan = make_plan(self._snapshot, self._settings, self._plan)
        first = self._applied is None
        if plan == self._applied and self._addresses == self._applied_with:
            return None
        self._applied = None
        try:
            written = self.dataplane.apply(plan)
        except HostError:
            self.observer.refused(full=first)
            raise
        self._applied, self._applied_with = plan, self._addresses
        self.last_applied = plan
        self._tracked = written.tracked or plan
        if first:
            self._rewritten_at = self.clock()
        return written

    def _failed(self, started: float, *, full: bool) -> None:
        self.observer.attempted(self.clock() - started, full=full)
        self._forget()
        self._scheduler = self._scheduler.record_failure(self.clock())

    def _succeeded(self, written: Applied | None, seconds: float) -> None:
        now = self.clock()
        self.observer.attempted(seconds, full=written is not None and written.rewritten)
        self.observer.applied(written, self.progress.subscription.applied())
        first = self.progress.updated_at is None
        self.progress.updated_at = now
        self._call_on_applied()
        if written is None:
            self._scheduler = self._scheduler.record_noop(now)
            return
        self._scheduler = self._scheduler.record_write(now, full=written.rewritten)
        if written.refused is not None:
            log.warning(
                "%s: a change was refused, so all was written: %s", self.family.value, written.refused
            )
        self._clean_due = True
        self._clean()
        level = logging.INFO if written.rewritten else logging.DEBUG
        log.log(level, "%s: synced in %.3f s: %s", self.family.value, seconds, written)
        self._log_once(*(f"{note.subject}: {note.text}" for note in self.notes), *written.problems)
        if first:
            self.on_first_sync()

    def _clean(self) -> None:
        """Remove stale connections; a failure does not make the sync fail, the next check repeats it."""
        if self._applied is None or self._tracked is None or not self._clean_due:
            return
        started = self.clock()
        try:
            removed = self.cleaner.remove(self._tracked)
        except HostError as error:
            log.warning("%s: could not remove stale connections: %s", self.family.value, error)
        else:
            self._clean_due = False
            self.observer.cleaned(self.clock() - started, removed)
            if removed:
                log.debug("%s: removed %d stale connections", self.family.value, removed)

    def _call_on_applied(self) -> None:
        if self._applied is not None:
            self.on_applied(self._applied)

    def _log_once(self, *lines: str) -> None:
        """Log each line once, until it disappears."""
        for line in lines:
            if line not in self._logged_lines:
                log.warning("%s: %s", self.family.value, line)
        self._logged_lines = frozenset(lines)

    def _check(self) -> None:
        """Compare the kernel with what was applied, and read the machine's options again.

        Clauses ``node-port.addresses.gained-inside-configured.either``, ``conntrack.invalid-not-leaked``,
        ``change.in-effect-soon``; ``rules.removed-by-another.restored``.
        """
        now = self.clock()
        thorough = self._scheduler.is_thorough_check_due(now)
        self._scheduler = self._scheduler.record_check(now)
        self._clean()
        self._call_on_applied()
        try:
            missing = self.dataplane.find_drift(thorough=thorough)
            reread = self.dataplane.refresh_options()
            settings = self.settings(self.store.cluster())
        except HostError as error:
            log.warning("%s: could not look at the kernel: %s", self.family.value, error)
            return
        if missing:
            self._handle_drift(now, missing)
        rewrite = reread or now - self._rewritten_at >= FULL_SYNC_SECONDS
        if rewrite:
            self._forget()
        if rewrite or settings != self._settings:
            self._scheduler = self._scheduler.request_sync(now)

    def _handle_drift(self, now: float, what: tuple[str, ...]) -> None:
        """Log drift and schedule its repair (``rules.removed-by-another.restored``), with growing waits if earlier repairs did not last."""
        if self._scheduler.drifted_at is not None:
            return
        self.observer.drifted()
        self._scheduler = self._scheduler.record_drift(now)
        wait = self._scheduler.next_repair - now
        when = (
            f"writing all again in {wait:.0f} s, as the last {self._scheduler.repairs} repairs did not last;"
            " does another service proxy run on this node?"
            if wait > 0
            else "writing all again"
        )
        log.warning("%s: another program changed our rules, %s: %s", self.family.value, when, "; ".join(what))
