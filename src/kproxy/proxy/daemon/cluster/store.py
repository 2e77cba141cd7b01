"""Store of the cluster's objects as of now: written by the watches, read by the syncs.

Sits between `kproxy.proxy.daemon.cluster.watch` (one thread per resource) and `kproxy.proxy.daemon.sync.family_sync`
(one thread per family). Only the fields that concern a proxy are kept, and only a difference in these wakes a sync:
the kubelet's heartbeats or a new label do not (``change.fields-without-bearing.undisturbed``). An unchanged
object stays the same
object, also over a new list, so that `kproxy.proxy.snapshot.normalise` finds changes by identity.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from kproxy.model.api import (
    HEADLESS_LABEL,
    PROXY_NAME_LABEL,
    SERVICE_NAME_LABEL,
    ZONE_LABEL,
    Cluster,
    EndpointSlice,
    Key,
    Metadata,
    Node,
    Rejected,
    Service,
    ServiceCIDR,
    key_of,
)
from kproxy.model.network import Family
from kproxy.proxy.daemon.sync.change_times import TriggerTimes

_LABELS = frozenset({SERVICE_NAME_LABEL, HEADLESS_LABEL, PROXY_NAME_LABEL, ZONE_LABEL})

Watched = Service | EndpointSlice | Node | ServiceCIDR
"""Objects of the kinds a proxy watches."""

Kind = type[Service] | type[EndpointSlice] | type[Node] | type[ServiceCIDR]
"""Types of these objects, which serve as the names of the resources."""

V = TypeVar("V", bound=Watched)


@dataclass(frozen=True, slots=True)
class Removed:
    """Key of an object that was deleted."""

    key: Key


Change = Watched | Removed | Rejected
"""New state of an object; `Rejected`: one that cannot be decoded, which replaces the last known state."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Changes that no reader has taken: when the first and the last of them arrived, on the store's clock."""

    first: float
    last: float


class Subscription:
    """One reader's view of a `ClusterStore`: it is woken by changes, and reports when it has applied them."""

    def __init__(self, store: ClusterStore, triggers: TriggerTimes | None = None) -> None:
        """Made by `ClusterStore.subscribe`."""
        self._store = store
        self._triggers = triggers or TriggerTimes(Family.IPV4)
        self._filter = triggers
        self.woken_at: float | None = None
        """Time of the last change, on the store's clock."""
        self.taken = Cluster()
        """Cluster that the reader took last."""
        self._lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pending: Pending | None = None
        self._applying_since: float | None = None
        self._active = False

    def __del__(self) -> None:
        """Close the descriptor with the last reference."""
        os.close(self._wake)

    def activate(self, now: float) -> None:
        """Start counting delay: changes that are already pending are dated ``now``.

        So the time before the first lists does not count as lateness.
        """
        with self._lock:
            self._active = True
            self._pending = Pending(now, now)

    def notify(
        self,
        now: float,
        changed: Collection[Watched] = (),
        removed: Collection[Key] = (),
        *,
        listed: bool = False,
    ) -> None:
        """Wake the reader: these objects were changed, and these removed (called by the store).

        ``listed``: they are a whole list, which every reader waits for.
        """
        with self._lock:
            if not listed and self._concerns_other_family(changed, removed):
                return
            self._triggers.note(changed, removed)
            self.woken_at = now
            self._pending = Pending(self._pending.first if self._pending else now, now)
        os.eventfd_write(self._wake, 1)

    def _concerns_other_family(self, changed: Collection[Watched], removed: Collection[Key]) -> bool:
        """True if all that changed are slices of a family that the reader does not serve."""
        if self._filter is None or removed or not changed:
            return False
        return all(map(self._filter.is_other_family, changed))

    def wait(self, seen: Pending | None, seconds: float | None, descriptors: Collection[int] = ()) -> bool:
        """Wait until ``pending`` is another than ``seen``, at most so many seconds (None: for ever).

        True at once when one of the descriptors is readable, or has an error to be read.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        readable = select.poll()
        for descriptor in (self._wake, *descriptors):
            readable.register(descriptor, select.POLLIN)
        while self._pending is seen:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            found = {number for number, _ in readable.poll(left and math.ceil(left * 1000))}
            if self._wake in found:
                os.eventfd_read(self._wake)
            if not found <= {self._wake}:
                return True
        return False

    @property
    def pending(self) -> Pending | None:
        """Changes that this reader has not taken yet, None for none."""
        return self._pending

    @property
    def waiting_since(self) -> float | None:
        """Arrival of the oldest change that is not applied yet, taken or not; None before `activate`."""
        with self._lock:
            if not self._active or self._applying_since is not None:
                return self._applying_since
            return self._pending.first if self._pending is not None else None

    def take(self) -> Cluster:
        """The cluster as it is now. All changes in it count as waiting until `applied` is called."""
        with self._lock:
            if self._applying_since is None and self._pending is not None:
                self._applying_since = self._pending.first
            self._pending = None
            self._triggers.take()
        self.taken = self._store.cluster()
        return self.taken

    def applied(self) -> tuple[float, ...]:
        """Record that the taken state is in the kernel.

        Returns the times of its changes, as far as they are dated (EndpointsLastChangeTriggerTime), in seconds since
        the epoch.
        """
        with self._lock:
            self._applying_since = None
            return self._triggers.applied()


class ClusterStore:
    """Objects of the cluster by kind and key; shared by threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` returns monotonic seconds; it dates the changes."""
        self._clock = clock
        self._lock = threading.Lock()
        self._objects: dict[Kind, dict[Key, Watched]] = {
            Service: {},
            EndpointSlice: {},
            Node: {},
            ServiceCIDR: {},
        }
        self._views: dict[Kind, Mapping[Key, Watched]] = {}
        self._rejected: dict[tuple[str, Key], Rejected] = {}
        self._listed: set[Kind] = set()
        self._feeds: list[Subscription] = []
        self.events: Counter[str] = Counter()
        """Number of events received, by the name of the kind; those that made no difference count too."""

    def subscribe(self, triggers: TriggerTimes | None = None) -> Subscription:
        """A new reader, for whom everything is pending.

        ``triggers`` receives the times of changes that it reads; the reader of one family's is not woken by slices of
        another.
        """
        feed = Subscription(self, triggers)
        with self._lock:
            self._feeds.append(feed)
        feed.notify(self._clock())
        return feed

    def unsubscribe(self, feed: Subscription) -> None:
        """Remove a reader."""
        with self._lock:
            self._feeds.remove(feed)

    def node(self, name: str) -> Node | None:
        """The Node of that name as it was last received: a deleted one is kept (``hz.node-delete``)."""
        found = self._objects[Node].get(("", name))
        return found if isinstance(found, Node) else None

    def listed(self, *kinds: Kind) -> bool:
        """True if all of these kinds have been listed completely at least once."""
        return self._listed.issuperset(kinds)

    def replace(self, kind: Kind, objects: Iterable[Watched], rejected: Iterable[Rejected]) -> None:
        """Replace all objects of a kind by a complete list."""
        given = {key_of(item): item for item in objects}
        with self._lock:
            self.events[kind.__name__] += len(given)
            old = self._objects[kind]
            new = {key: _strip_metadata(item) for key, item in given.items()}
            if kind is Node:
                new = old | new
            for key in old.keys() & new.keys():
                if old[key] == new[key]:
                    new[key] = old[key]
            for place in [place for place in self._rejected if place[0] == kind.__name__]:
                del self._rejected[place]
            self._rejected.update({(kind.__name__, bad.key): bad for bad in rejected})
            changed = kind not in self._listed or old != new
            self._objects[kind] = new
            self._listed.add(kind)
            if changed:
                fresh = [item for key, item in given.items() if new[key] is not old.get(key)]
                self._changed(kind, fresh, old.keys() - new.keys(), listed=True)

    def apply(self, kind: Kind, changes: Iterable[Change]) -> None:
        """Apply several changes of one kind, in their order, as one change."""
        with self._lock:
            made = []
            for change in changes:
                self.events[kind.__name__] += 1
                if self._apply_one(kind, change):
                    made.append(change)
            if made:
                objects = [change for change in made if not isinstance(change, Removed | Rejected)]
                self._changed(kind, objects, [c.key for c in made if isinstance(c, Removed | Rejected)])

    def cluster(self) -> Cluster:
        """All stored objects as one immutable value."""
        with self._lock:
            return Cluster(
                services=self._view(Service),
                slices=self._view(EndpointSlice),
                nodes=self._view(Node),
                service_cidrs=self._view(ServiceCIDR),
                rejected=tuple(self._rejected.values()),
            )

    def _apply_one(self, kind: Kind, change: Change) -> bool:
        objects = self._objects[kind]
        match change:
            case Removed(key):
                self._rejected.pop((kind.__name__, key), None)
                return kind is not Node and objects.pop(key, None) is not None
            case Rejected(key=key):
                self._rejected[kind.__name__, key] = change
                return kind is not Node and objects.pop(key, None) is not None
            case item:
                key, new = key_of(item), _strip_metadata(item)
                self._rejected.pop((kind.__name__, key), None)
                if objects.get(key) == new:
                    return False
                objects[key] = new
                return True

    def _changed(
        self, kind: Kind, objects: Collection[Watched], gone: Collection[Key], *, listed: bool = False
    ) -> None:
        self._views.pop(kind, None)
        now = self._clock()
        for feed in self._feeds:
            feed.notify(now, objects, gone if kind is EndpointSlice else (), listed=listed)

    def _view(self, kind: Kind) -> Mapping[Key, Any]:
        """Copy of a kind's objects that no later change modifies; the same object as long as nothing changes."""
        if kind not in self._views:
            self._views[kind] = dict(self._objects[kind])
        return self._views[kind]


def _strip_metadata(item: V) -> V:
    """Object without the metadata that no proxy reads: version, annotations, most labels."""
    metadata, labels = item.metadata, item.metadata.labels
    kept = Metadata(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        labels=labels if labels.keys() <= _LABELS else {n: labels[n] for n in _LABELS if n in labels},
        deletion_timestamp=metadata.deletion_timestamp,
    )
    return msgspec.structs.replace(item, metadata=kept)
