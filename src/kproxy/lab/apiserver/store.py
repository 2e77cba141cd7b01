"""Object store of the lab's API server: objects, one revision counter, and the history of changes.

The harness writes to it directly, without awaiting; HTTP clients write through `writes`. It knows no HTTP and no
sockets, and admits anything: nothing is validated or defaulted, so that a proxy can be given objects a real API
server would refuse. Not for use from several threads.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from kproxy.lab.apiserver.resources import ResourceKind
from kproxy.lab.apiserver.versions import Key, Version, complete_document, encode_version, object_key

_REVISION = attrgetter("revision")


class RevisionExpired(Exception):
    """Revision whose later changes are no longer in the history."""

    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {requested} ({oldest})")


@dataclass(frozen=True, slots=True)
class StoreChange:
    """Change of an object from ``old`` to ``new`` at ``revision``; None: it did not, does not exist."""

    revision: int
    old: Version | None
    new: Version | None


class History:
    """Latest changes of one kind, oldest first; ``floor`` is the revision of the last one forgotten."""

    def __init__(self, limit: int, floor: int) -> None:
        self._limit = limit
        self._changes: list[StoreChange] = []
        self.floor = floor

    def append(self, change: StoreChange) -> None:
        """Add a change; drop the oldest in one go once there are a quarter too many."""
        self._changes.append(change)
        if len(self._changes) > self._limit + self._limit // 4:
            surplus = len(self._changes) - self._limit
            self.floor = self._changes[surplus - 1].revision
            del self._changes[:surplus]

    def since(self, revision: int, count: int | None = None) -> list[StoreChange]:
        """At most ``count`` changes after a revision, oldest first; raises `RevisionExpired`."""
        if revision < self.floor:
            raise RevisionExpired(revision, self.floor)
        first = bisect_right(self._changes, revision, key=_REVISION)
        return self._changes[first : None if count is None else first + count]


class ObjectStore:
    """Objects by kind, namespace and name, with one increasing revision over all of them."""

    def __init__(
        self,
        *,
        history: int = 65_536,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``history``: number of changes of each kind that a watch may resume over."""
        self._revision = 1
        self._compacted = 0
        self._clock = clock
        self._objects: dict[ResourceKind, dict[Key, Version]] = {kind: {} for kind in ResourceKind}
        self._histories = {kind: History(history, self._revision) for kind in ResourceKind}
        self._listeners: dict[ResourceKind, set[Callable[[], None]]] = {kind: set() for kind in ResourceKind}
        self._batches = 0
        self._unannounced: set[ResourceKind] = set()

    @property
    def revision(self) -> int:
        """Revision of the last change: a list's resourceVersion."""
        return self._revision

    # --------------------------------------------------------------------------- writing

    def put(self, kind: ResourceKind, document: Mapping[str, Any]) -> int:
        """Create or replace an object and return its revision; identical content changes nothing.

        Uid, creationTimestamp, generation and resourceVersion are filled in; the document itself is left alone and
        may be reused. ValueError without ``metadata.name``.
        """
        claimed = document.get("kind", kind.value)
        if claimed != kind.value:
            raise ValueError(f"a {claimed} put as {kind.value}")
        fresh = self._complete(kind, document)
        if fresh is None:
            return self._objects[kind][object_key(kind, document)].revision
        self._revision += 1
        version = encode_version(kind, fresh, self._revision)
        old = self._objects[kind].get(version.key)
        self._objects[kind][version.key] = version
        self._record(kind, StoreChange(self._revision, old, version))
        return self._revision

    def delete(self, kind: ResourceKind, namespace: str, name: str) -> int:
        """Delete an object, finalizers or not; returns the revision of the deletion. KeyError if there is none."""
        old = self._objects[kind].pop((namespace, name))
        self._revision += 1
        self._record(kind, StoreChange(self._revision, old, None))
        return self._revision

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Announce all changes made in the context together, at its end. Do not await inside."""
        self._batches += 1
        try:
            yield
        finally:
            self._batches -= 1
            if not self._batches:
                self._announce()

    def compact(self) -> None:
        """Make every revision returned so far too old to list or to start a watch from (410).

        Watches that are open go on, as they do over a compaction of etcd.
        """
        self._revision += 1
        self._compacted = self._revision

    # --------------------------------------------------------------------------- reading

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Version | None:
        """Present version of an object; namespace "" for cluster-scoped kinds."""
        return self._objects[kind].get((namespace, name))

    def objects(self, kind: ResourceKind) -> list[Version]:
        """All present objects of a kind, by namespace and name."""
        return _sorted(self._objects[kind])

    def documents(self, kind: ResourceKind) -> list[dict[str, Any]]:
        """All present objects of a kind as JSON documents."""
        return [version.document() for version in self.objects(kind)]

    def objects_at(self, kind: ResourceKind, revision: int) -> list[Version]:
        """All objects of a kind as they were at a past revision; raises `RevisionExpired`."""
        self.check(revision)
        objects = dict(self._objects[kind])
        for change in reversed(self._histories[kind].since(revision)):
            match change:
                case StoreChange(old=None, new=Version(key=key)):
                    del objects[key]
                case StoreChange(old=Version(key=key) as old):
                    objects[key] = old
                case _:
                    raise AssertionError(f"a change of nothing: {change}")
        return _sorted(objects)

    def since(self, kind: ResourceKind, revision: int, count: int) -> list[StoreChange]:
        """Next changes of a kind after a revision; raises `RevisionExpired` if some are forgotten."""
        return self._histories[kind].since(revision, count)

    def check(self, revision: int) -> None:
        """Raise `RevisionExpired` if a revision was compacted away."""
        if revision < self._compacted:
            raise RevisionExpired(revision, self._compacted)

    @contextmanager
    def listening(self, kind: ResourceKind, listener: Callable[[], None]) -> Iterator[None]:
        """Call ``listener`` after changes of a kind, for the length of the context."""
        self._listeners[kind].add(listener)
        try:
            yield
        finally:
            self._listeners[kind].discard(listener)

    # --------------------------------------------------------------------------- within

    def _complete(self, kind: ResourceKind, document: Mapping[str, Any]) -> dict[str, Any] | None:
        old = self._objects[kind].get(object_key(kind, document))
        now = f"{self._clock():%Y-%m-%dT%H:%M:%SZ}"
        before = old.document() if old else None
        return complete_document(kind, document, before, uid=str(uuid.uuid4()), now=now)

    def _record(self, kind: ResourceKind, change: StoreChange) -> None:
        self._histories[kind].append(change)
        self._unannounced.add(kind)
        if not self._batches:
            self._announce()

    def _announce(self) -> None:
        kinds, self._unannounced = self._unannounced, set()
        for kind in kinds:
            for listener in tuple(self._listeners[kind]):
                listener()


def _sorted(objects: Mapping[Key, Version]) -> list[Version]:
    return [objects[key] for key in sorted(objects)]
