"""One version of one object, encoded once: lists and watches are joins of these bytes.

``Version.item`` always begins ``{"metadata":{"resourceVersion":"N"``, so another revision can be
stamped on it, and ``kind`` and ``apiVersion`` put before it, without decoding.  List items go out
without the two, as a real API server's do.  Pure: time and uid come in as arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec

from kproxy.lab.apiserver.resources import FIELDS, NAMESPACED, ApiResource, Document, FieldPath, ResourceKind

Key = tuple[str, str]
"""Namespace ("" for cluster-scoped kinds) and name."""

_TYPE_META = ("kind", "apiVersion")
_SERVER_KEPT = ("resourceVersion", "generation")


@dataclass(frozen=True, slots=True)
class Version:
    """Object as it was at ``revision``; ``item`` is its JSON without kind and apiVersion."""

    kind: ResourceKind
    key: Key
    revision: int
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    item: bytes

    def document(self) -> Document:
        """Object decoded, in its stored form, without kind and apiVersion."""
        return cast("Document", msgspec.json.decode(self.item))

    def stamped(self, revision: int) -> Version:
        """Same content under another revision, as a DELETED event carries it."""
        item = _opening(revision) + self.item[len(_opening(self.revision)) :]
        return replace(self, revision=revision, item=item)


def _opening(revision: int) -> bytes:
    return b'{"metadata":{"resourceVersion":"%d"' % revision


def object_key(kind: ResourceKind, document: Mapping[str, Any]) -> Key:
    """Key of a document; namespace ``default`` if it names none. ValueError without a name."""
    metadata = document.get("metadata") or {}
    name = metadata.get("name")
    if not name:
        raise ValueError(f"{kind.value} without metadata.name")
    return (metadata.get("namespace") or "default" if kind in NAMESPACED else "", name)


def encode_version(kind: ResourceKind, document: Mapping[str, Any], revision: int) -> Version:
    """Encode a complete document (see `complete_document`) as the version of this revision."""
    metadata = {"resourceVersion": str(revision), **_without(document["metadata"], ("resourceVersion",))}
    body = {"metadata": metadata, **_without(document, ("metadata", *_TYPE_META))}
    fields = {label: _text(document, path) for label, path in FIELDS[kind].items()}
    item = msgspec.json.encode(body)
    return Version(
        kind, object_key(kind, document), revision, dict(metadata.get("labels") or {}), fields, item
    )


def complete_document(
    kind: ResourceKind, given: Mapping[str, Any], before: Document | None, *, uid: str, now: str
) -> Document | None:
    """Document to store for a writer's document: identity kept, generation counted.

    ``uid`` and ``now`` (RFC 3339) are used for a new object that brings none. None when nothing differs from
    ``before``: an API server then writes nothing.
    """
    namespace, name = object_key(kind, given)
    metadata = _without(given["metadata"], _SERVER_KEPT)
    metadata |= {"name": name} | ({"namespace": namespace} if namespace else {})
    body = _without(given, ("metadata", *_TYPE_META))
    if before is None:
        identity = {"uid": uid, "creationTimestamp": now}
        kept = {key: value for key, value in metadata.items() if value is not None}
        return {"metadata": {**identity, **kept, "generation": 1}, **body}
    return _succeeded(metadata, body, before)


def _succeeded(metadata: Document, body: Document, before: Document) -> Document | None:
    old = before["metadata"]
    metadata |= {"uid": old["uid"], "creationTimestamp": old["creationTimestamp"]}
    old_body = _without(before, ("metadata",))
    if metadata == _without(old, _SERVER_KEPT) and body == old_body:
        return None
    specified_anew = _without(body, ("status",)) != _without(old_body, ("status",))
    return {"metadata": metadata | {"generation": old["generation"] + specified_anew}, **body}


def list_item(version: Version, resource: ApiResource) -> bytes:
    """The JSON of one entry of a list's ``items``."""
    if resource.shown_as_stored:
        return version.item
    return msgspec.json.encode(resource.to_served(version.document()))


def whole_object(version: Version, resource: ApiResource) -> bytes:
    """The JSON of the object standing alone or in a watch event: with kind and apiVersion."""
    opening = f'{{"kind":"{resource.kind.value}","apiVersion":"{resource.api_version}",'
    return opening.encode() + list_item(version, resource)[1:]


def served_document(version: Version, resource: ApiResource) -> Document:
    """Object decoded, in the form that this resource serves."""
    return cast("Document", msgspec.json.decode(whole_object(version, resource)))


def _without(mapping: Mapping[str, Any], keys: tuple[str, ...]) -> Document:
    return {key: value for key, value in mapping.items() if key not in keys}


def _text(document: Mapping[str, Any], path: FieldPath) -> str:
    value: Any = document
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
