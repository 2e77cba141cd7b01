"""Mutants that need a history: an event missed, a retry forgotten, a state believed, writes in the wrong order.

No case of the catalogue is made for them. `tests.mutants.simulate` shows that universes find them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kproxy.linux.host import HostError
from tests.mutants.mutant import Function, Mutant, Patch, Wrap, in_ipvs, in_nftables, mutant

FAMILY_SYNC = "kproxy.proxy.daemon.sync.family_sync:FamilySync."
STORE = "kproxy.proxy.daemon.cluster.store:ClusterStore."
SUBSCRIPTION = "kproxy.proxy.daemon.cluster.store:Subscription."
SCHEDULER = "kproxy.proxy.daemon.sync.pacing:SyncScheduler."
REFLECTOR = "kproxy.proxy.daemon.cluster.watch:Reflector."
CLEANER = "kproxy.proxy.daemon.sync.conntrack_cleanup:ConntrackCleaner."
NFTABLES = "kproxy.proxy.backends.nftables."
IPVS = "kproxy.proxy.backends.ipvs."
FEW = 4
"""Failures in a row."""


# ------------------------------------------------------------------ events that wake nobody


def _silent_for(unheard: Function) -> Wrap:
    """A wrap of `ClusterStore._apply_one`: the change is stored, and no sync is woken, where ``unheard(old, change)``."""

    def wrap(apply_one: Function) -> Function:
        def applying(self: Any, kind: Any, change: Any) -> bool:  # noqa: ANN401
            from kproxy.model.api import Rejected, key_of  # noqa: PLC0415
            from kproxy.proxy.daemon.cluster.store import Removed  # noqa: PLC0415

            key = change.key if isinstance(change, Removed | Rejected) else key_of(change)
            old = self._objects[kind].get(key)
            changed: bool = apply_one(self, kind, change)
            if changed and unheard(old, change):
                self._views.pop(kind, None)
                return False
            return changed

        return applying

    return wrap


def _is_removal_of(*kinds: str) -> Function:
    def unheard(old: Any, change: Any) -> bool:  # noqa: ANN401
        return type(change).__name__ == "Removed" and type(old).__name__ in kinds

    return unheard


def _differs_only_in(*fields: str) -> Function:
    """Function that is true of a Service whose spec differs from the one before in these fields alone."""

    def unheard(old: Any, new: Any) -> bool:  # noqa: ANN401
        from kproxy.model.api import Service  # noqa: PLC0415

        if not isinstance(old, Service) or not isinstance(new, Service) or old.status != new.status:
            return False
        names = (name for name in old.spec.__struct_fields__ if name not in fields)
        return all(getattr(old.spec, name) == getattr(new.spec, name) for name in names)

    return unheard


def _only_conditions(old: Any, new: Any) -> bool:  # noqa: ANN401
    """True of a slice whose endpoints have the addresses that they had."""
    from kproxy.model.api import EndpointSlice  # noqa: PLC0415

    if not isinstance(old, EndpointSlice) or not isinstance(new, EndpointSlice) or old.ports != new.ports:
        return False
    return [one.addresses for one in old.endpoints or ()] == [one.addresses for one in new.endpoints or ()]


def _is_node(_old: Any, change: Any) -> bool:  # noqa: ANN401
    return type(change).__name__ == "Node"


def _is_first_slice(old: Any, change: Any) -> bool:  # noqa: ANN401
    return old is None and type(change).__name__ == "EndpointSlice"


def _relist_wakes_nobody(changed: Function) -> Function:
    def waking(self: Any, kind: Any, objects: Any, gone: Any, *, listed: bool = False) -> None:  # noqa: ANN401
        if listed and all(feed.taken.services for feed in self._feeds):
            self._views.pop(kind, None)
            return
        changed(self, kind, objects, gone, listed=listed)

    return waking


def _relist_compares_names(replacing: Function) -> Function:
    """A list with the names that were known is taken for the state that was known."""

    def replaced(self: Any, kind: Any, objects: Iterable[Any], rejected: Any) -> None:  # noqa: ANN401
        from kproxy.model.api import key_of  # noqa: PLC0415

        given = list(objects)
        if kind in self._listed and {key_of(item) for item in given} == self._objects[kind].keys():
            return
        replacing(self, kind, given, rejected)

    return replaced


def _relist_adds_only(replacing: Function) -> Function:
    """A list of EndpointSlices changes no slice that is known: updates come by the watch."""

    def replaced(self: Any, kind: Any, objects: Iterable[Any], rejected: Any) -> None:  # noqa: ANN401
        from kproxy.model.api import EndpointSlice, key_of  # noqa: PLC0415

        known = self._objects[kind] if kind is EndpointSlice else {}
        replacing(self, kind, [known.get(key_of(item), item) for item in objects], rejected)

    return replaced


# ------------------------------------------------------------------ races between resources


def _orphans_dropped(apply: Function) -> Function:
    """Slices of a Service that is not known are dropped."""

    def applying(self: Any, kind: Any, changes: Iterable[Any]) -> None:  # noqa: ANN401
        from kproxy.model.api import SERVICE_NAME_LABEL, EndpointSlice, Service  # noqa: PLC0415

        def known(change: Any) -> bool:  # noqa: ANN401
            if not isinstance(change, EndpointSlice):
                return True
            name = change.metadata.labels.get(SERVICE_NAME_LABEL)
            return (change.metadata.namespace, name) in self._objects[Service]

        apply(self, kind, list(filter(known, changes)))

    return applying


def _slices_go_with_their_service(apply_one: Function) -> Function:
    """With a Service its slices are forgotten."""

    def applying(self: Any, kind: Any, change: Any) -> bool:  # noqa: ANN401
        from kproxy.model.api import SERVICE_NAME_LABEL, EndpointSlice, Service  # noqa: PLC0415
        from kproxy.proxy.daemon.cluster.store import Removed  # noqa: PLC0415

        if kind is Service and isinstance(change, Removed):
            slices = self._objects[EndpointSlice]
            for key in [
                k
                for k, one in slices.items()
                if (k[0], one.metadata.labels.get(SERVICE_NAME_LABEL)) == change.key
            ]:
                del slices[key]
            self._views.pop(EndpointSlice, None)
        return bool(apply_one(self, kind, change))

    return applying


# ------------------------------------------------------------------ syncs and retries


def _pending_forgotten(applied: Function) -> Function:
    """What arrives during a sync is taken for applied by it."""

    def applying(self: Any) -> Any:  # noqa: ANN401
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


def _clean_once(remove: Function) -> Function:
    """A plan counts as cleaned when it is made, though its write failed."""

    def brought(self: Any, cluster: Any) -> Any:  # noqa: ANN401
        try:
            return remove(self, cluster)
        except HostError:
            plan = self._plan
            services = tuple(s for s in plan.services if s.protocol.name == "UDP")
            self.cleaner._handled_services = (plan.node_ports, services)
            raise

    return brought


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


def _initial_at_once(replacing: Function) -> Function:  # noqa: ARG001
    """Initial events are applied as they come, and what is missing when the stream ends counts as deleted."""

    def take(self: Any, lines: Any) -> None:  # noqa: ANN401
        from kproxy.proxy.daemon.cluster.watch_decoder import Bookmark, WatchedChange  # noqa: PLC0415

        found = []
        try:
            for some in lines:
                for event in self._decoder.decode_events(some):
                    match event:
                        case WatchedChange(change):
                            found.append(change)
                        case Bookmark(version, complete=True):
                            self._replace(found, [], version)
                            self._record_success()
                            return
                        case _:
                            pass
        finally:
            if self._ever_listed:
                self._store.replace(self._resource.kind, found, [])
        raise ConnectionError("closed before the end of the initial events")

    return take


# ------------------------------------------------------------------ order of writes


def _deletions_first(_: Function) -> Function:
    """Elements that change are deleted in one transaction and added in the next."""

    def batches(self: Any) -> Any:  # noqa: ANN401
        from kproxy.proxy.backends.nftables.commands import DeleteElements  # noqa: PLC0415

        switch = list(self._switch())
        yield list(self._new_chains())
        yield [command for command in switch if isinstance(command, DeleteElements)]
        yield [command for command in switch if not isinstance(command, DeleteElements)]

    return batches


def _steps(edit: Function) -> Wrap:
    """A wrap of `transaction` of ipvs mode that changes the steps of an update."""

    def wrap(transaction: Function) -> Function:
        def made(*of: Any) -> Any:  # noqa: ANN401
            found = transaction(*of)
            return replace(found, steps=tuple(edit(list(found.steps))))

        return made

    return wrap


def _addresses_first(steps: list[Any]) -> list[Any]:
    return sorted(steps, key=lambda step: not getattr(step, "bind", False))


def _addresses_last(steps: list[Any]) -> list[Any]:
    return sorted(steps, key=lambda step: getattr(step, "bind", None) is False)


def _members_last(steps: list[Any]) -> list[Any]:
    return sorted(steps, key=lambda step: type(step).__name__ == "ChangeMembers")


def _removals_first(steps: list[Any]) -> list[Any]:
    """Destinations and virtual servers go before others come."""

    def ordered(step: Any) -> Any:  # noqa: ANN401
        if type(step).__name__ != "SendCommands":
            return step
        return replace(
            step, commands=tuple(sorted(step.commands, key=lambda c: "Remove" not in type(c).__name__))
        )

    return list(map(ordered, steps))


def _drained_stays(additions: Function) -> Function:
    """A destination that comes back while its connections drain gets no new ones."""

    def added(self: Any) -> Any:  # noqa: ANN401
        return (command for command in additions(self) if getattr(command, "new", True))

    return added


def _keeps_picture(reading: Function) -> Function:
    """After a failure what was known of the kernel is taken for what is there."""

    def read(self: Any, desired: Any) -> Any:  # noqa: ANN401
        return self._actual if self._actual.servers else reading(self, desired)

    return read


def _lock_is_done(restore: Function) -> Function:
    """A tool that did not get the lock in time is taken to have written."""

    def restoring(self: Any, *of: Any, **more: Any) -> None:  # noqa: ANN401
        try:
            restore(self, *of, **more)
        except HostError as error:
            if "lock" not in str(error):
                raise

    return restoring


def _wall_clock(post_init: Function) -> Function:
    def made(self: Any) -> None:  # noqa: ANN401
        import time  # noqa: PLC0415

        self.clock = time.time
        self.store._clock = time.time
        post_init(self)

    return made


_apply_one = f"{STORE}_apply_one"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "history.deletions-wake-nobody",
        "That a Service was deleted, with its EndpointSlices, is applied with the next change.",
        Patch(_apply_one, _silent_for(_is_removal_of("Service", "EndpointSlice"))),
    ),
    in_ipvs(
        "history.deleted-slice-wakes-nobody",
        "That an EndpointSlice was deleted is applied with the next change.",
        Patch(_apply_one, _silent_for(_is_removal_of("EndpointSlice"))),
    ),
    in_nftables(
        "history.first-slice-wakes-nobody",
        "A new EndpointSlice is applied with the next change: its Service is thought to follow.",
        Patch(_apply_one, _silent_for(_is_first_slice)),
    ),
    in_nftables(
        "history.conditions-wake-nobody",
        "Conditions and hints of endpoints are applied with the next change of addresses.",
        Patch(_apply_one, _silent_for(_only_conditions)),
    ),
    in_nftables(
        "history.zone-wakes-nobody",
        "The node's own zone is applied with the next change of a Service.",
        Patch(_apply_one, _silent_for(_is_node)),
    ),
    in_nftables(
        "history.fields-wake-nobody",
        "A Service's policies, source ranges and affinity are applied with the next change of its ports or endpoints.",
        Patch(
            _apply_one,
            _silent_for(
                _differs_only_in(
                    "internal_traffic_policy",
                    "external_traffic_policy",
                    "health_check_node_port",
                    "load_balancer_source_ranges",
                    "session_affinity",
                    "session_affinity_config",
                )
            ),
        ),
    ),
    in_ipvs(
        "history.type-wakes-nobody",
        "Another type, external IPs or node ports are applied with the next change of endpoints.",
        Patch(
            _apply_one,
            _silent_for(_differs_only_in("type", "external_ips", "ports", "external_traffic_policy")),
        ),
    ),
    mutant(
        "history.list-wakes-nobody",
        "What a new list brings, after versions were gone, is applied with the next event.",
        Patch(f"{STORE}_changed", _relist_wakes_nobody),
    ),
    in_nftables(
        "history.list-compared-by-name",
        "A new list with the names that were known is taken for the state that was known.",
        Patch(f"{STORE}replace", _relist_compares_names),
    ),
    in_ipvs(
        "history.list-adds-only",
        "A new list changes no EndpointSlice that is known.",
        Patch(f"{STORE}replace", _relist_adds_only),
    ),
    in_nftables(
        "history.list-applied-in-pieces",
        "A list that is cut off is taken for the whole.",
        Patch(f"{REFLECTOR}_take_initial", _initial_at_once),
    ),
    mutant(
        "history.orphans-dropped",
        "EndpointSlices that arrive before their Service are dropped.",
        Patch(f"{STORE}apply", _orphans_dropped),
    ),
    in_nftables(
        "history.slices-go-with-their-service",
        "With a deleted Service its EndpointSlices are forgotten, though they may not be deleted.",
        Patch(_apply_one, _slices_go_with_their_service),
    ),
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
        Patch(f"{FAMILY_SYNC}_bring_up_to_date", _clean_once),
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
    mutant(
        "history.lock-is-done",
        "A write that did not get the lock of iptables is taken for done.",
        Patch("kproxy.proxy.backends.xtables.kernel.tools:Tools.restore", _lock_is_done),
    ),
    in_nftables(
        "history.deletions-first",
        "Elements that change are deleted in one transaction and added in the next.",
        Patch(f"{NFTABLES}diff:Update.batches", _deletions_first),
    ),
    in_ipvs(
        "history.addresses-first",
        "Addresses are bound before there is a virtual server behind them.",
        Patch(f"{IPVS}kernel.applier:transaction", _steps(_addresses_first)),
    ),
    in_ipvs(
        "history.addresses-last",
        "Addresses are unbound when there is no virtual server behind them any more.",
        Patch(f"{IPVS}kernel.applier:transaction", _steps(_addresses_last)),
    ),
    in_ipvs(
        "history.guards-last",
        "What restricts a virtual server comes after it.",
        Patch(f"{IPVS}kernel.applier:transaction", _steps(_members_last)),
    ),
    in_ipvs(
        "history.removals-first",
        "Destinations go before others come.",
        Patch(f"{IPVS}kernel.applier:transaction", _steps(_removals_first)),
    ),
    in_ipvs(
        "history.drained-stays",
        "An endpoint that comes back while its connections drain gets no new ones.",
        Patch(f"{IPVS}diff:_ServerCommands.additions", _drained_stays),
    ),
    in_ipvs(
        "history.picture-kept",
        "After a failed write what was known of IPVS is taken for what is there.",
        Patch(f"{IPVS}kernel.applier:IpvsKernel._read", _keeps_picture),
    ),
)
