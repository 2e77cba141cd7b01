"""Mutants of the daemon's handling of faults: failed writes, missed events, a start with half of the lists."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from kproxy.model.api import Service
from tests.mutants.mutant import Function, Patch, answering, instead, mutant

needing_kernel = partial(mutant, needs_kernel=True)

KERNEL = "kproxy.proxy.backends.iptables.kernel.applier:IptablesKernel."
_RECENT = Path("/proc/thread-self/net/xt_recent")


def _believing(self: Any, *_: Any, **__: Any) -> None:  # noqa: ANN401
    """A failed write is taken for successful."""
    self._applied = self._plan
    self._scheduler = self._scheduler.record_noop(self.clock())


def _keeping_the_absent(replace: Function) -> Function:
    def keeping(self: Any, kind: Any, objects: Iterable[Any], rejected: Any) -> None:  # noqa: ANN401
        replace(self, kind, [*self._objects[kind].values(), *objects], rejected)

    return keeping


def _first_of_each(apply: Function) -> Function:
    """Of several changes of an object that arrive together only the first is applied."""
    from kproxy.model.api import Rejected, key_of  # noqa: PLC0415
    from kproxy.proxy.daemon.cluster.store import Removed  # noqa: PLC0415

    def applying(self: Any, kind: Any, changes: Iterable[Any]) -> None:  # noqa: ANN401
        first: dict[Any, Any] = {}
        for change in changes:
            first.setdefault(change.key if isinstance(change, Removed | Rejected) else key_of(change), change)
        apply(self, kind, first.values())

    return applying


def _for_services_only(self: Any) -> None:  # noqa: ANN401
    feed = self.progress.subscription
    while True:
        seen = feed.pending
        if self.store.listed(Service):
            break
        feed.wait(seen, None)
    feed.activate(self.clock())


def _forgetting_clients(write: Function) -> Function:
    """Affinity entries are removed before rules are written."""

    def writing(self: Any, *of: Any) -> Any:  # noqa: ANN401
        for clients in _RECENT.glob("*"):
            clients.write_text("/\n")
        return write(self, *of)

    return writing


MUTANTS = (
    needing_kernel(
        "trouble.failed-is-done",
        "What the kernel refused is taken for written.",
        Patch("kproxy.proxy.daemon.sync.family_sync:FamilySync._failed", instead(_believing)),
        clauses="writes.refused.tried-again",
    ),
    needing_kernel(
        "trouble.always-well",
        "A proxy that cannot write goes on reporting that it is well.",
        Patch("kproxy.proxy.daemon.http.health:_is_stale", answering(value=False)),
        clauses="proxy-health.late.told health-check.late-proxy.told",
    ),
    needing_kernel(
        "trouble.absent-is-kept",
        "Objects that are missing from a new list are kept.",
        Patch("kproxy.proxy.daemon.cluster.store:ClusterStore.replace", _keeping_the_absent),
        clauses="watch.interrupted.changes-applied",
    ),
    needing_kernel(
        "trouble.first-counts",
        "Of several changes of an object that come together the first counts.",
        Patch("kproxy.proxy.daemon.cluster.store:ClusterStore.apply", _first_of_each),
        clauses="watch.changes-together.last-counts",
    ),
    needing_kernel(
        "trouble.services-suffice",
        "A proxy that starts writes rules as soon as Services are listed.",
        Patch("kproxy.proxy.daemon.sync.family_sync:FamilySync.wait_for_lists", instead(_for_services_only)),
        clauses="restart.lists-incomplete.rules-kept",
    ),
    needing_kernel(
        "affinity.forgotten-at-start",
        "A proxy that starts forgets whom clients stick to.",
        Patch(f"{KERNEL}_rewrite", _forgetting_clients),
        clauses="affinity.stays-over-restart",
    ),
    needing_kernel(
        "affinity.forgotten-at-change",
        "Every change makes clients forget whom they stick to.",
        Patch(f"{KERNEL}apply", _forgetting_clients),
        clauses="affinity.endpoint-added.stays",
    ),
)
