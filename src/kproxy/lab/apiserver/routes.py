"""Routing: verb and resource of a request's method and path. Pure.

Paths: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kproxy.lab.apiserver import discovery
from kproxy.lab.apiserver.resources import ApiResource, Document, find_resource
from kproxy.lab.apiserver.status import method_not_allowed, no_such_path


class Verb(enum.Enum):
    """Verb of a request; the value is RBAC's spelling."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    DELETE = "delete"


ALL_VERBS = frozenset(Verb)

_OF_OBJECT = {"GET": Verb.GET, "PUT": Verb.UPDATE, "PATCH": Verb.PATCH, "DELETE": Verb.DELETE}
_OF_COLLECTION = {"GET": Verb.LIST, "POST": Verb.CREATE}


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """Resource, namespace or all (None; "" for cluster-scoped ones), and one object or all (None)."""

    resource: ApiResource
    namespace: str | None
    name: str | None

    def verb(self, method: str, *, watch: bool) -> Verb:
        """Verb of a request for this path; raises `ApiError` 405."""
        table = _OF_COLLECTION if self.name is None else _OF_OBJECT
        verb = table.get(method)
        if verb is None or (verb is Verb.CREATE and self.namespace is None):
            raise method_not_allowed(method)
        return Verb.WATCH if watch and verb in {Verb.GET, Verb.LIST} else verb


@dataclass(frozen=True, slots=True)
class FixedDocument:
    """Path that always has the same document, or text."""

    answer: Document | str


def parse_path(path: str) -> ResourcePath | FixedDocument:
    """Resource or document of a path; raises `ApiError` 404."""
    match path.strip("/").split("/"):
        case ["healthz" | "livez" | "readyz", *_]:
            return FixedDocument("ok")
        case ["version"]:
            return FixedDocument(discovery.version_document())
        case ["api"]:
            return FixedDocument(discovery.core_versions())
        case ["apis"]:
            return FixedDocument(discovery.group_list())
        case ["apis", group]:
            return _fixed(discovery.group(group))
        case ["api", version, *rest]:
            return _in_group("", version, rest)
        case ["apis", group, version, *rest]:
            return _in_group(group, version, rest)
        case _:
            raise no_such_path()


def _in_group(group: str, version: str, rest: list[str]) -> ResourcePath | FixedDocument:
    match rest:
        case []:
            return _fixed(discovery.resource_list(group, version))
        case ["namespaces", namespace, plural]:
            return _place(find_resource(group, version, plural), namespace, None)
        case ["namespaces", namespace, plural, name]:
            return _place(find_resource(group, version, plural), namespace, name)
        case [plural]:
            return _place(find_resource(group, version, plural), None, None)
        case [plural, name]:
            return _place(find_resource(group, version, plural), None, name)
        case _:
            raise no_such_path()


def _fixed(document: Document | None) -> FixedDocument:
    if document is None:
        raise no_such_path()
    return FixedDocument(document)


def _place(resource: ApiResource | None, namespace: str | None, name: str | None) -> ResourcePath:
    if resource is None:
        raise no_such_path()
    if not resource.namespaced:
        if namespace is not None:
            raise no_such_path()
        return ResourcePath(resource, "", name)
    if name is not None and namespace is None:
        raise no_such_path()
    return ResourcePath(resource, namespace, name)
