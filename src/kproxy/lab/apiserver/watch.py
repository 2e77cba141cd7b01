"""Watch response: reads the store's history behind a cursor and writes events, many in one write.

A watch has no queue of its own. One that falls behind the history gets 410, as a real one does; one that keeps up
costs a slice of the history and a join of bytes encoded before.

Event semantics: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from kproxy.lab.apiserver.faults import Faults
from kproxy.lab.apiserver.options import ListOptions
from kproxy.lab.apiserver.resources import ApiResource
from kproxy.lab.apiserver.routes import Verb
from kproxy.lab.apiserver.selectors import Selection
from kproxy.lab.apiserver.status import expired, too_large
from kproxy.lab.apiserver.store import ObjectStore, RevisionExpired, StoreChange
from kproxy.lab.apiserver.versions import Version, whole_object

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_EVENTS_PER_WRITE = 512
_RESOLUTION = time.get_clock_info("monotonic").resolution
"""Seconds by which asyncio may run a timer early."""

Write = Callable[[bytes], Awaitable[None]]


class WatchEventType(enum.Enum):
    """Type of a watch event, without bookmarks and errors."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


def event_for(change: StoreChange, selection: Selection) -> tuple[WatchEventType, Version] | None:
    """Event of a change for a watch with a selection; None when the change does not concern it.

    Entering the selection is ADDED, leaving it DELETED, with the last selected state under the revision of the
    change.
    """
    old = change.old if change.old and selection.shows(change.old) else None
    new = change.new if change.new and selection.shows(change.new) else None
    match old, new:
        case Version(), None:
            return WatchEventType.DELETED, old.stamped(change.revision)
        case None, Version():
            return WatchEventType.ADDED, new
        case Version(), Version():
            return WatchEventType.MODIFIED, new
        case _:
            return None


@dataclass(slots=True)
class _Progress:
    """Position of a watch: objects still to be sent at the start, then a cursor in the history."""

    initial: list[Version]
    initial_revision: int
    end_mark: bool
    cursor: int


class Watch:
    """A stream of events of one resource to one client."""

    def __init__(
        self,
        store: ObjectStore,
        faults: Faults,
        resource: ApiResource,
        options: ListOptions,
        bookmark_seconds: float,
    ) -> None:
        """Raises `ApiError` 504 for a WatchList from a revision that is not reached."""
        if options.watch_list and (options.revision or 0) > store.revision:
            raise too_large(options.revision or 0, store.revision)
        self.resource = resource
        self._store = store
        self._faults = faults
        self._options = options
        self._bookmark_seconds = bookmark_seconds
        self._wake = asyncio.Event()
        self._ended = False
        self._progress: _Progress | None = None

    @property
    def is_current(self) -> bool:
        """True if its client has been sent all there is."""
        progress = self._progress
        return (
            progress is not None
            and not progress.initial
            and not progress.end_mark
            and not self._store.since(self.resource.kind, progress.cursor, 1)
        )

    def end(self) -> None:
        """End the stream cleanly, soon."""
        self._ended = True
        self._wake.set()

    async def run(self, write: Write) -> None:
        """Write events until the timeout, the end, or an error event."""
        kind = self.resource.kind
        with self._store.listening(kind, self._wake.set), self._faults.listening(self._wake.set):
            try:
                await self._stream(write)
            except RevisionExpired as error:
                await write(_line("ERROR", msgspec.json.encode(expired(str(error)).status())))

    async def _stream(self, write: Write) -> None:
        if not self._options.from_present and self._options.revision:
            self._store.check(self._options.revision)
        clock = asyncio.get_running_loop().time
        deadline = clock() + (self._options.timeout_seconds or float("inf"))
        next_bookmark = clock() + self._bookmark_seconds
        while not self._ended and clock() < deadline:
            self._wake.clear()
            data = self._next_events()
            if data:
                await write(data)
                await self._pause()
            elif clock() >= next_bookmark:
                await self._write_bookmark(write)
                next_bookmark = clock() + self._bookmark_seconds
            else:
                await self._sleep_until(min(deadline, next_bookmark))
        if not self._ended:
            await self._write_bookmark(write)

    async def _sleep_until(self, moment: float) -> None:
        """Sleep until a time, never less, or until there may be something to send.

        asyncio runs timers early by up to the resolution of its clock, which is 10 ms in a universe. Two watches that then
        look at the clock, and sleep again because their time has not come, would take turns for ever there: neither waits,
        so no time passes.
        """
        try:
            async with asyncio.timeout_at(moment + _RESOLUTION):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _pause(self) -> None:
        seconds = self._faults.seconds_between_events(self.resource.kind)
        if seconds:
            await asyncio.sleep(seconds)

    # --------------------------------------------------------------------------- events

    def _next_events(self) -> bytes:
        count = 1 if self._faults.seconds_between_events(self.resource.kind) else _EVENTS_PER_WRITE
        if self._progress is None:
            if self._options.from_present and self._held(Verb.LIST):
                return b""
            self._progress = self._begin()
        if self._progress.initial or self._progress.end_mark:
            return self._initial_events(self._progress, count)
        return b"" if self._held(Verb.WATCH) else self._changes(self._progress, count)

    def _begin(self) -> _Progress:
        store, options = self._store, self._options
        if not options.from_present:
            revision = options.revision or store.revision
            return _Progress([], revision, end_mark=False, cursor=revision)
        shown = [v for v in store.objects(self.resource.kind) if options.selection.shows(v)]
        shown.reverse()
        end_mark = options.watch_list and options.bookmarks
        return _Progress(shown, store.revision, end_mark=end_mark, cursor=store.revision)

    def _initial_events(self, progress: _Progress, count: int) -> bytes:
        sent = min(count, len(progress.initial))
        lines = [self._event(WatchEventType.ADDED, progress.initial.pop()) for _ in range(sent)]
        if progress.end_mark and not progress.initial:
            lines.append(self._bookmark(progress.initial_revision, {INITIAL_EVENTS_END: "true"}))
            progress.end_mark = False
        return b"".join(lines)

    def _changes(self, progress: _Progress, count: int) -> bytes:
        lines: list[bytes] = []
        while not lines:
            changes = self._store.since(self.resource.kind, progress.cursor, count)
            if not changes:
                break
            progress.cursor = changes[-1].revision
            seen = (event_for(change, self._options.selection) for change in changes)
            lines = [self._event(*event) for event in seen if event]
        return b"".join(lines)

    def _held(self, verb: Verb) -> bool:
        return self._faults.holds(verb, self.resource.kind)

    def _event(self, event_type: WatchEventType, version: Version) -> bytes:
        return _line(event_type.value, whole_object(version, self.resource))

    # --------------------------------------------------------------------------- bookmarks

    async def _write_bookmark(self, write: Write) -> None:
        if self._bookmark_is_due():
            await write(self._bookmark(self._store.revision, {}))

    def _bookmark_is_due(self) -> bool:
        progress, kind = self._progress, self.resource.kind
        return (
            self._options.bookmarks
            and progress is not None
            and not progress.initial
            and not self._faults.stalls_bookmarks(kind)
            and not self._held(Verb.WATCH)
            and not self._store.since(kind, progress.cursor, 1)
        )

    def _bookmark(self, revision: int, annotations: dict[str, str]) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        bookmark = {
            "kind": self.resource.kind.value,
            "apiVersion": self.resource.api_version,
            "metadata": metadata,
        }
        return _line("BOOKMARK", msgspec.json.encode(bookmark))


def _line(event_type: str, item: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event_type.encode(), item)
