"""Responses to list requests: a join of bytes encoded before, in pages of one consistent past state.

A continue token holds the revision and the last key sent; later pages are made from the state at that revision, so a
change between two pages does not show.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from kproxy.lab.apiserver.options import ListOptions, ResourceVersionMatch
from kproxy.lab.apiserver.resources import ApiResource, ResourceKind
from kproxy.lab.apiserver.status import bad_request, expired, too_large
from kproxy.lab.apiserver.store import ObjectStore, RevisionExpired
from kproxy.lab.apiserver.versions import Key, Version, list_item


class _Token(msgspec.Struct, frozen=True):
    revision: int
    after: Key


class _ListMeta(msgspec.Struct, omit_defaults=True, rename="camel"):
    resource_version: str
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


def list_body(store: ObjectStore, resource: ApiResource, options: ListOptions) -> bytes:
    """JSON of the requested list; raises `ApiError` 400, 410 or 504."""
    token = _read_token(options.continue_token) if options.continue_token else None
    try:
        revision, versions = _state(store, resource.kind, options, token)
    except RevisionExpired as error:
        raise expired(str(error)) from error
    if not options.selection.everything:
        versions = [version for version in versions if options.selection.shows(version)]
    if token is not None:
        versions = [version for version in versions if version.key > token.after]
    page = versions[: options.limit] if options.limit else versions
    metadata = _ListMeta(str(revision))
    if len(page) < len(versions):
        metadata.continue_ = _write_token(_Token(revision, page[-1].key))
        if not (options.selection.labels or options.selection.fields):
            metadata.remaining_item_count = len(versions) - len(page)
    return _join(resource, metadata, page)


def _state(
    store: ObjectStore, kind: ResourceKind, options: ListOptions, token: _Token | None
) -> tuple[int, list[Version]]:
    requested = token.revision if token else options.revision or 0
    if requested > store.revision:
        raise too_large(requested, store.revision)
    exact = options.match is ResourceVersionMatch.EXACT or (
        options.match is None and options.limit and requested
    )
    if token or exact:
        return requested, store.objects_at(kind, requested)
    return store.revision, store.objects(kind)


def _join(resource: ApiResource, metadata: _ListMeta, page: list[Version]) -> bytes:
    opening = f'{{"kind":"{resource.kind.value}List","apiVersion":"{resource.api_version}","metadata":'
    items = b",".join([list_item(version, resource) for version in page])
    return b"".join((opening.encode(), msgspec.json.encode(metadata), b',"items":[', items, b"]}\n"))


def _write_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _read_token(text: str) -> _Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Token)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
