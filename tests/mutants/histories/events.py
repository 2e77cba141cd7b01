"""Histories: changes of objects that are stored and wake nobody, lists believed or taken in pieces, races between resources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.mutants.mutant import Function, Mutant, Patch, Wrap, in_ipvs, in_nftables, mutant

STORE = "kproxy.proxy.daemon.cluster.store:ClusterStore."
REFLECTOR = "kproxy.proxy.daemon.cluster.watch:Reflector."
_apply_one = f"{STORE}_apply_one"


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


def _is_first_slice(old: Any, change: Any) -> bool:  # noqa: ANN401
    return old is None and type(change).__name__ == "EndpointSlice"


def _relist_wakes_nobody(changed: Function) -> Function:
    def waking(self: Any, kind: Any, objects: Any, gone: Any, *, listed: bool = False) -> None:  # noqa: ANN401
        if listed and any(feed.taken.services for feed in self._feeds):  # not the first lists
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
)
