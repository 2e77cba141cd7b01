"""Histories: failures that are not repeated, state believed after one, stale connections removed too early or never."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from kproxy.linux.host import HostError
from tests.mutants.mutant import Function, Mutant, Patch, in_ipvs, in_nftables, mutant

FAMILY_SYNC = "kproxy.proxy.daemon.sync.family_sync:FamilySync."
SUBSCRIPTION = "kproxy.proxy.daemon.cluster.store:Subscription."
SCHEDULER = "kproxy.proxy.daemon.sync.pacing:SyncScheduler."
CLEANER = "kproxy.proxy.daemon.sync.conntrack_cleanup:ConntrackCleaner."
NFTABLES = "kproxy.proxy.backends.nftables."
FEW = 4
SETTLED = 15.0
"""Seconds after which a proxy that has started has applied what was there."""


def _pending_forgotten(applied: Function) -> Function:
    """What arrives during a sync is taken for applied by it, once the start is over: else nothing is ever served."""

    def applying(self: Any) -> Any:  # noqa: ANN401
        now = time.monotonic()
        self.started = getattr(self, "started", now)
        if now - self.started > SETTLED:
            self._pending = None
        return applied(self)

    return applying


def _gives_up(retry: Function) -> Function:
    def retried(self: Any) -> Any:  # noqa: ANN401
        return None if self.failures > FEW else retry(self)

    return retried


def _retry_of_the_taken(sync: Function) -> Function:
    """A retry writes what failed, and takes changes since for written too."""

    def synced(self: Any) -> None:  # noqa: ANN401
        feed = self.progress.subscription
        if not self._scheduler.failures:
            sync(self)
            return
        old = feed.taken
        real = type(feed).take

        def take(feed: Any) -> Any:  # noqa: ANN401
            real(feed)
            feed.taken = old
            return old

        type(feed).take = take
        try:
            sync(self)
        finally:
            type(feed).take = real

    return synced


def _forgets_if_quiet(failed: Function) -> Function:
    """A failure does not discard the known state where a change waits already, whose sync is to write it."""

    def failing(self: Any, started: float, *, full: bool) -> None:  # noqa: ANN401
        if self.progress.subscription.pending is None:
            failed(self, started, full=full)
            return
        self._applied = None
        self._scheduler = self._scheduler.record_failure(self.clock())

    return failing


def _believes_desired(apply: Function) -> Function:
    """What could not be written is the known state until it is discarded."""

    def applying(self: Any, nftables: Any, desired: Any, started: float) -> Any:  # noqa: ANN401
        try:
            return apply(self, nftables, desired, started)
        except HostError:
            self._last_applied = desired
            raise

    return applying


def _two_plans(bring: Function) -> Function:
    """First what is no longer wanted goes, then comes what is new: in two syncs."""

    def brought(self: Any, cluster: Any) -> Any:  # noqa: ANN401
        applied = self._applied
        real = self.dataplane.apply

        def apply(plan: Any) -> Any:  # noqa: ANN401
            if applied is not None:
                kept = tuple(service for service in plan.services if service in applied.services)
                real(replace(plan, services=kept))
            return real(plan)

        self.dataplane.apply = apply
        try:
            return bring(self, cluster)
        finally:
            del self.dataplane.apply

    return brought


def _clean_first(bring: Function) -> Function:
    """Stale connections are removed before the rules that made them."""

    def brought(self: Any, cluster: Any) -> Any:  # noqa: ANN401
        real = self.dataplane.apply

        def apply(plan: Any) -> Any:  # noqa: ANN401
            self.cleaner.remove(plan)
            return real(plan)

        self.dataplane.apply = apply
        try:
            return bring(self, cluster)
        finally:
            del self.dataplane.apply

    return brought


def _clean_once(failed: Function) -> Function:
    """A plan counts as cleaned when it is made, though its write failed."""

    def after_failure(self: Any, started: float, *, full: bool) -> None:  # noqa: ANN401
        failed(self, started, full=full)
        if plan := self._plan:
            services = tuple(s for s in plan.services if s.protocol.name == "UDP")
            self.cleaner._handled = (plan.node_ports, services, plan.service_cidrs)
            self.cleaner._unsure = False

    return after_failure


def _clean_removed_only(remove: Function) -> Function:
    """Only what left since the last sync is stale; what an entry leads to otherwise is not looked at."""

    def removing(self: Any, before: Any, now: Any) -> Any:  # noqa: ANN401
        if not before:
            return remove(self, before, now)
        gone = {
            place
            for name in ("by_socket", "by_node_port")
            for where, serving in getattr(before, name).items()
            for place in serving - getattr(now, name).get(where, frozenset())
        }
        return remove(self, before, now) if gone else 0

    return removing


def _unbounded(delay: Function) -> Function:
    def delayed(self: Any, failures: int, chance: float) -> Any:  # noqa: ANN401
        return delay(self, failures, chance) if failures < FEW else self.first * 3.0**failures

    return delayed


def _wall_clock(post_init: Function) -> Function:
    def made(self: Any) -> None:  # noqa: ANN401
        import time  # noqa: PLC0415

        self.clock = time.time
        self.store._clock = time.time
        post_init(self)

    return made


MUTANTS: tuple[Mutant, ...] = (
    in_nftables(
        "history.pending-forgotten",
        "A change that arrives during a sync is taken for applied by it.",
        Patch(f"{SUBSCRIPTION}applied", _pending_forgotten),
    ),
    in_ipvs(
        "history.gives-up",
        "After five failures in a row a write is not tried again until something changes.",
        Patch(f"{SCHEDULER}_retry", _gives_up),
    ),
    in_nftables(
        "history.retries-what-it-took",
        "A retry writes the state that failed, and takes what came since for written too.",
        Patch(f"{FAMILY_SYNC}_sync", _retry_of_the_taken),
    ),
    in_nftables(
        "history.failure-overtaken",
        "A failed write is not repeated where a change that came meanwhile is written before.",
        Patch(f"{FAMILY_SYNC}_failed", _forgets_if_quiet),
        Patch(f"{NFTABLES}kernel.applier:NftablesKernel._apply", _believes_desired),
    ),
    mutant(
        "history.removed-then-added",
        "A changed Service is taken away in one write and comes back in the next.",
        Patch(f"{FAMILY_SYNC}_bring_up_to_date", _two_plans),
    ),
    in_nftables(
        "history.cleaned-first",
        "Stale connections are removed before the rules that they came by.",
        Patch(f"{FAMILY_SYNC}_bring_up_to_date", _clean_first),
    ),
    mutant(
        "history.cleaned-once",
        "Stale connections of a change whose first write failed are never removed.",
        Patch(f"{FAMILY_SYNC}_failed", _clean_once),
    ),
    in_nftables(
        "history.cleaned-if-removed",
        "Stale connections are looked for only where an endpoint left.",
        Patch(f"{CLEANER}_remove", _clean_removed_only),
    ),
    in_nftables(
        "history.backoff-unbounded",
        "The pause before the next watch grows without bound while the API server is away.",
        Patch("kproxy.proxy.daemon.cluster.watch:Backoff.delay", _unbounded),
    ),
    in_nftables(
        "history.wall-clock",
        "Syncs are scheduled by the wall clock.",
        Patch(f"{FAMILY_SYNC}__post_init__", _wall_clock),
    ),
)
