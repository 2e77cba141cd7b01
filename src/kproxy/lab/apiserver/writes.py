"""Writes of HTTP clients: create, update, patch, delete, with the checks that make them safe together.

Only what concerns concurrent writers is checked (names, namespaces, existence, resourceVersion). Content is neither
validated nor defaulted, and no addresses or ports are allocated. A strategic merge patch is applied as a JSON merge
patch (RFC 7396): lists are replaced whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kproxy.lab.apiserver.protobuf import read_event
from kproxy.lab.apiserver.resources import ApiResource, Document, ResourceKind
from kproxy.lab.apiserver.routes import ResourcePath, Verb
from kproxy.lab.apiserver.status import (
    already_exists,
    bad_request,
    conflict,
    invalid_object,
    not_found,
    success,
    unsupported_media_type,
)
from kproxy.lab.apiserver.store import ObjectStore
from kproxy.lab.apiserver.versions import Version, served_document, whole_object

JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
PATCH_TYPES = ("application/merge-patch+json", "application/strategic-merge-patch+json")


@dataclass(frozen=True, slots=True)
class RequestBody:
    """A request's body; ``content_type`` without parameters, "" if none was named."""

    content_type: str
    data: bytes


def handle_write(store: ObjectStore, place: ResourcePath, verb: Verb, body: RequestBody) -> tuple[int, bytes]:
    """Apply a write; returns HTTP code and JSON of the response. Raises `ApiError`."""
    match verb:
        case Verb.CREATE:
            return 201, _create(store, place, body)
        case Verb.UPDATE:
            return 200, _update(store, place, _object(place.resource, body))
        case Verb.PATCH:
            return 200, _patch(store, place, body)
        case Verb.DELETE:
            return 200, _delete(store, place)
        case Verb.GET | Verb.LIST | Verb.WATCH:
            raise ValueError(f"{verb} writes nothing")


def get_object(store: ObjectStore, place: ResourcePath) -> Version:
    """Object at a path; raises `ApiError` 404."""
    name = place.name or ""
    version = store.get(place.resource.kind, place.namespace or "", name)
    if version is None:
        raise not_found(place.resource, name)
    return version


def apply_merge_patch(target: object, patch: Mapping[str, Any]) -> Document:
    """A JSON value with a merge patch applied (RFC 7396, for patches that are objects)."""
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = apply_merge_patch(result.get(key), value)
        else:
            result[key] = value
    return result


def _create(store: ObjectStore, place: ResourcePath, body: RequestBody) -> bytes:
    document = _object(place.resource, body)
    metadata = {
        key: value
        for key, value in document["metadata"].items()
        if key not in {"uid", "creationTimestamp", "generation", "managedFields"}
    }
    if metadata.pop("resourceVersion", ""):
        raise bad_request("resourceVersion should not be set on objects to be created")
    name = metadata.get("name") or _generated(metadata)
    if not name:
        raise invalid_object(
            place.resource, "", "metadata.name: Required value: name or generateName is required"
        )
    if store.get(place.resource.kind, place.namespace or "", name) is not None:
        raise already_exists(place.resource, name)
    return _put(store, ResourcePath(place.resource, place.namespace, name), document | {"metadata": metadata})


def _update(store: ObjectStore, place: ResourcePath, document: Document) -> bytes:
    version = get_object(store, place)
    metadata = document["metadata"]
    name = metadata.get("name")
    if name != place.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({place.name})"
        )
    if metadata.get("resourceVersion") not in {None, "", str(version.revision)}:
        raise conflict(place.resource, version.key[1])
    if metadata.get("uid") not in {None, "", version.document()["metadata"]["uid"]}:
        raise conflict(place.resource, version.key[1])
    return _put(store, place, document)


def _patch(store: ObjectStore, place: ResourcePath, body: RequestBody) -> bytes:
    if body.content_type not in PATCH_TYPES:
        raise unsupported_media_type(body.content_type, PATCH_TYPES)
    patch = _decoded(body.data)
    return _update(
        store, place, apply_merge_patch(served_document(get_object(store, place), place.resource), patch)
    )


def _delete(store: ObjectStore, place: ResourcePath) -> bytes:
    version = get_object(store, place)
    namespace, name = version.key
    revision = store.delete(place.resource.kind, namespace, name)
    if place.resource.kind is ResourceKind.SERVICE:
        return whole_object(version.stamped(revision), place.resource)
    uid = version.document()["metadata"]["uid"]
    return msgspec.json.encode(success(place.resource, name, uid))


def _put(store: ObjectStore, place: ResourcePath, document: Document) -> bytes:
    metadata = document["metadata"] | {"name": place.name}
    given = metadata.get("namespace")
    if given and given != place.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if place.namespace:
        metadata["namespace"] = place.namespace
    store.put(place.resource.kind, place.resource.to_stored(document | {"metadata": metadata}))
    return whole_object(get_object(store, place), place.resource)


def _generated(metadata: Mapping[str, Any]) -> str:
    prefix = metadata.get("generateName") or ""
    return prefix and prefix + uuid.uuid4().hex[:5]


def _object(resource: ApiResource, body: RequestBody) -> Document:
    document = _readable(resource, body)
    claimed = (document.get("kind", resource.kind.value), document.get("apiVersion", resource.api_version))
    if claimed != (resource.kind.value, resource.api_version):
        raise bad_request(
            f"the object is {claimed}, the path is for {(resource.kind.value, resource.api_version)}"
        )
    return document | {"metadata": document.get("metadata") or {}}


def _readable(resource: ApiResource, body: RequestBody) -> Document:
    if body.content_type in {"", JSON}:
        return _decoded(body.data)
    if body.content_type == PROTOBUF and resource.kind is ResourceKind.EVENT:
        try:
            return read_event(body.data)
        except ValueError as error:
            raise bad_request(str(error)) from error
    raise unsupported_media_type(body.content_type, (JSON,))


def _decoded(data: bytes) -> Document:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is no JSON object: {error}") from error
