"""Decoder of lists and watch events into typed objects; an object that does not decode is set aside with its reason.

Sits between `kproxy.proxy.daemon.cluster.client` (bytes) and `kproxy.proxy.daemon.cluster.watch` (requests). Pure. A
whole list or a whole piece of a stream is decoded at once, which takes a microsecond or two per object; only when
that fails is each object decoded by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from kproxy.model.api import Key, Rejected, decode_object, has_valid_names, key_of
from kproxy.proxy.daemon.cluster.store import Change, Kind, Removed, Watched

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the initial events of a WatchList (KEP-3157)."""

Item = TypeVar("Item")

_CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})


@dataclass(frozen=True, slots=True)
class ListResult:
    """List of objects, those that could not be decoded, and the version a watch may start from."""

    objects: Sequence[Watched]
    rejected: tuple[Rejected, ...]
    version: str


class WatchedChange(msgspec.Struct, frozen=True, gc=False):
    """Change of an object, and the version after it (empty when it could not be decoded)."""

    change: Change
    version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Event without a change, which carries a version; ``complete``: it ends the initial events."""

    version: str
    complete: bool


@dataclass(frozen=True, slots=True)
class WatchError:
    """Error event, which ends the watch; ``code`` 410 means that the version is too old to resume from."""

    code: int
    message: str


WatchEvent = WatchedChange | Bookmark | WatchError


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _List(msgspec.Struct, Generic[Item]):
    metadata: _ListMetadata
    items: list[Item] | None = None


class _Event(msgspec.Struct, Generic[Item]):
    type: str
    object: Item


class _BookmarkMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _BookmarkMetadata


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


_raw_list = msgspec.json.Decoder(_List[msgspec.Raw])
_raw_event = msgspec.json.Decoder(_Event[msgspec.Raw])
_object = msgspec.json.Decoder(_Object)
_status = msgspec.json.Decoder(_Status)


class WatchDecoder:
    """Decoder of lists and events of one kind."""

    def __init__(self, kind: Kind) -> None:
        """``kind``: the type of the objects."""
        self._kind = kind
        self._list = msgspec.json.Decoder(_List[kind])  # type: ignore[valid-type]
        self._event = msgspec.json.Decoder(_Event[kind])  # type: ignore[valid-type]

    def decode_list(self, body: bytes) -> ListResult:
        """Decode a list; raises `msgspec.DecodeError` when it is none at all."""
        try:
            whole = self._list.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._decode_list_items(body)
        items = whole.items or ()
        if not has_valid_names(items):
            return self._decode_list_items(body)
        return ListResult(items, (), whole.metadata.resource_version)

    def _decode_list_items(self, body: bytes) -> ListResult:
        whole = _raw_list.decode(body)
        objects: list[Watched] = []
        rejected: list[Rejected] = []
        for raw in whole.items or ():
            match decode_object(raw, self._kind):
                case Rejected() as bad:
                    rejected.append(bad)
                case item:
                    objects.append(item)
        return ListResult(objects, tuple(rejected), whole.metadata.resource_version)

    def decode_events(self, lines: bytes) -> list[WatchEvent]:
        """Events of some whole lines of a watch; raises `msgspec.DecodeError` when they are none."""
        whole = self._decode_all(lines)
        if whole is not None and all(event.type in _CHANGES for event in whole):
            return [_changed(event.type, event.object) for event in whole]
        return [self._event_of(event) for event in _raw_event.decode_lines(lines)]

    def decode_added(self, lines: bytes) -> dict[Key, Watched] | None:
        """Objects by key, if all lines are ADDED events, as in most of a WatchList; else None."""
        whole = self._decode_all(lines)
        if whole is None or {event.type for event in whole} != {"ADDED"}:
            return None
        return {key_of(event.object): event.object for event in whole}

    def _decode_all(self, lines: bytes) -> list[_Event[Watched]] | None:
        """All events, or None if the object of any cannot be decoded."""
        try:
            whole: list[_Event[Watched]] = self._event.decode_lines(lines)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return whole if has_valid_names([event.object for event in whole]) else None

    def _event_of(self, event: _Event[msgspec.Raw]) -> WatchEvent:
        match event.type:
            case "BOOKMARK":
                metadata = _object.decode(event.object).metadata
                return Bookmark(metadata.resource_version, INITIAL_EVENTS_END in (metadata.annotations or {}))
            case "ADDED" | "MODIFIED" | "DELETED":
                return self._change_of(event)
            case "ERROR":
                status = _status.decode(event.object)
                return WatchError(status.code, status.message)
            case other:
                return WatchError(0, f"unknown event {other!r}")

    def _change_of(self, event: _Event[msgspec.Raw]) -> WatchedChange:
        match decode_object(event.object, self._kind):
            case Rejected() as bad:
                return WatchedChange(
                    Removed(bad.key) if event.type == "DELETED" else bad,
                    _version_of_undecodable(event.object),
                )
            case item:
                return _changed(event.type, item)


def _changed(event_type: str, item: Watched) -> WatchedChange:
    change = Removed(key_of(item)) if event_type == "DELETED" else item
    return WatchedChange(change, item.metadata.resource_version)


def _version_of_undecodable(raw: msgspec.Raw) -> str:
    try:
        return _object.decode(raw).metadata.resource_version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
