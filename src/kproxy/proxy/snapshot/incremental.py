"""Incremental normalisation: brings a `Snapshot` up to date; only Services whose objects were replaced cost work."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain, compress
from operator import is_, is_not
from typing import TypeVar

from kproxy.model import api
from kproxy.model.api import Cluster, Key, key_of
from kproxy.model.network import Family
from kproxy.proxy.snapshot.services import normalise_service
from kproxy.proxy.snapshot.values import ServiceInfo, Snapshot, SnapshotCache

V = TypeVar("V")


def normalise(cluster: Cluster, family: Family, previous: Snapshot | None = None) -> Snapshot:
    """The snapshot of ``cluster`` in one family; never raises on bad objects.

    Equal to a fresh computation whatever ``previous`` is.  With the last snapshot of the same
    family as ``previous`` it costs a few identity comparisons per object, and work only for Services whose own object or
    slices are other objects than before; unchanged `ServiceInfo` values are the same objects, and
    ``services`` is the same mapping when none changed.  So: keep one snapshot per family, make each new
    `Cluster` by replacing objects in copies of its mappings, and call
    ``snapshot = normalise(cluster, family, snapshot)``.

    Clause ``node-port.both-families.served``.
    """
    if previous is None or previous.family is not family:
        previous = _empty_cache(family)
    cache = previous.cache
    index, touched = _reindex(cache, cluster.slices, family)
    touched = {key for key in touched if key in cluster.services}
    touched |= changed_keys(cache.source.services, cluster.services)
    services, notes = dict(previous.services), dict(cache.notes)
    for key in touched:
        service, own_notes = normalise_service(cluster.services.get(key), index.get(key, ()), family)
        _put(services, key, service)
        _put(notes, key, own_notes or None)
    return Snapshot(
        family=family,
        services=_in_order(services, previous.services, touched),
        notes=tuple(chain.from_iterable(notes[key] for key in sorted(notes))),
        cache=SnapshotCache(cluster, index, notes),
    )


def changed_keys(old: Mapping[Key, V], new: Mapping[Key, V]) -> set[Key]:
    """Keys whose value is another object (or none) in ``new``; fast when a few values were replaced."""
    if old is new:
        return set()
    if len(old) == len(new) and all(map(is_, old, new)):
        return set(compress(new, map(is_not, new.values(), old.values())))
    changed = {key for key, value in new.items() if old.get(key) is not value}
    return changed.union(key for key in old if key not in new)


def _empty_cache(family: Family) -> Snapshot:
    return Snapshot(family=family, services={}, notes=(), cache=SnapshotCache(Cluster(), {}, {}))


def _put(mapping: dict[Key, V], key: Key, value: V | None) -> None:
    """Set or remove; an equal value already there stays the same object."""
    if value is None:
        mapping.pop(key, None)
    elif mapping.get(key) != value:
        mapping[key] = value


def _in_order(
    services: dict[Key, ServiceInfo], before: Mapping[Key, ServiceInfo], touched: Collection[Key]
) -> Mapping[Key, ServiceInfo]:
    """The mapping sorted by key, or ``before`` itself when nothing differs from it."""
    if all(services.get(key) is before.get(key) for key in touched):
        return before
    if all(key in before for key in touched if key in services):
        return services
    return {key: services[key] for key in sorted(services)}


def _reindex(
    cache: SnapshotCache, slices: Mapping[Key, api.EndpointSlice], family: Family
) -> tuple[Mapping[Key, tuple[api.EndpointSlice, ...]], set[Key]]:
    """The family's slices by Service, brought up to date, and the Services whose slices changed."""
    before = cache.source.slices
    arrived: dict[Key, list[api.EndpointSlice]] = {}
    for key in changed_keys(before, slices):
        old, new = before.get(key), slices.get(key)
        if old is not None and (owner := owner_of(old, family)) is not None:
            arrived.setdefault(owner, [])
        if new is not None and (owner := owner_of(new, family)) is not None:
            arrived.setdefault(owner, []).append(new)
    if not arrived:
        return cache.slices, set()
    index = dict(cache.slices)
    for owner, group in arrived.items():
        if len(group) == 1 and owner not in index:
            index[owner] = tuple(group)
            continue
        kept = [item for item in index.get(owner, ()) if slices.get(key_of(item)) is item]
        whole = {item.metadata.name: item for item in (*kept, *group)}
        if whole:
            # the present objects, not equal ones from before: changes are detected by identity
            index[owner] = tuple(whole[name] for name in sorted(whole))
        else:
            index.pop(owner, None)
    return index, set(arrived)


def owner_of(item: api.EndpointSlice, family: Family) -> Key | None:
    """Key of the Service a slice serves in this family, None for none.

    Clauses ``slices.other-family.ignored``, ``slices.fqdn.ignored``, ``slices.without-service-name.ignored``,
    ``slices.headless-label.ignored``.
    """
    if item.address_type != family.value:
        return None
    labels = item.metadata.labels
    name = labels.get(api.SERVICE_NAME_LABEL)
    if not name or api.HEADLESS_LABEL in labels:
        return None
    return (item.metadata.namespace, name)
