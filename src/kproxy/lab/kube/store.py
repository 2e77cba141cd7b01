"""Writes objects to a kube-apiserver as the harness writes them to the lab's own: whole, at once, by whoever asks.

Server-side apply, so that an object is made or changed by the same request; a status goes to its own subresource.
Blocking, for the harness writes without awaiting.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kproxy.lab.apiserver.resources import RESOURCES, Document, Kind, Resource
from kproxy.lab.namespaces import LabError, Namespace

PATIENCE = 30.0
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_OWNER = "fieldManager=kproxy-lab&force=true"
_NAMESPACES = Resource(kind=Kind.NAMESPACE, group="", version="v1", plural="namespaces", namespaced=False)
_BY_KIND = {resource.kind: resource for resource in reversed(RESOURCES)}
_IMMUTABLE = "may not change once set"
_ALLOCATED = frozenset({"clusterIP", "clusterIPs"})
_NOTHING: tuple[object, ...] = (None, "", [], {}, False, 0)


class Refused(LabError):
    """A real API server does not admit this object; ``str()`` is its reason."""


class KubeStore:
    """The objects of a kube-apiserver that listens on loopback in ``namespace``."""

    def __init__(self, namespace: Namespace, port: int, tls: ssl.SSLContext, token: str) -> None:
        self._namespace, self._port, self._tls = namespace, port, tls
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._connection: http.client.HTTPConnection | None = None
        self._known_namespaces: set[str] = set()

    def put(self, kind: Kind, document: Mapping[str, Any]) -> None:
        """Create or replace an object; one that may not change so is deleted and made anew.

        Raises `Refused`, `LabError`.
        """
        whole = dict(document)
        status = whole.pop("status", None)
        namespace = whole["metadata"].get("namespace", "")
        if namespace:
            self._make_namespace(namespace)
        path = _path(_BY_KIND[kind], namespace, whole["metadata"]["name"])
        try:
            self._ask("PATCH", f"{path}?{_OWNER}", whole, _APPLY)
        except Refused as reason:
            if _IMMUTABLE not in str(reason):
                raise
            self.delete(kind, namespace, whole["metadata"]["name"])
            self._ask("PATCH", f"{path}?{_OWNER}", whole, _APPLY)
        if status is not None:
            self._ask("PATCH", f"{path}/status", {"status": _settable(kind, status)}, _MERGE)

    def objection(self, kind: Kind, document: Mapping[str, Any]) -> str | None:
        """Why the server would not hold this object as it is; None when it would.  Writes nothing."""
        whole = {name: value for name, value in document.items() if name != "status"}
        namespace = whole["metadata"].get("namespace", "")
        if namespace:
            self._make_namespace(namespace)
        path = _path(_BY_KIND[kind], namespace, whole["metadata"]["name"])
        try:
            held = self._ask("PATCH", f"{path}?{_OWNER}&dryRun=All", whole, _APPLY)
        except Refused as reason:
            return str(reason)
        return next(_differences(whole, held), None)

    def delete(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete an object; KeyError when there is none."""
        status = self._ask("DELETE", _path(_BY_KIND[kind], namespace, name), None, "", tolerated=(404,))
        if status.get("code") == http.client.NOT_FOUND:
            raise KeyError(name)

    def documents(self, kind: Kind) -> list[Document]:
        """All objects of a kind."""
        items: list[Document] = self._ask("GET", _path(_BY_KIND[kind], "", ""), None, "")["items"]
        return items

    def ready(self) -> bool:
        """Whether the server serves, with all it makes for itself at its start."""
        try:
            return self._send("GET", "/readyz", None, "")[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def close(self) -> None:
        """Close the connection to it, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _make_namespace(self, name: str) -> None:
        if name not in self._known_namespaces:
            made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self._ask("PATCH", f"{_path(_NAMESPACES, '', name)}?{_OWNER}", made, _APPLY)
            self._known_namespaces.add(name)

    def _ask(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None,
        content_type: str,
        tolerated: tuple[int, ...] = (),
    ) -> dict[str, Any]:
        try:
            code, body = self._send(method, path, document, content_type)
        except (OSError, http.client.HTTPException) as error:
            raise LabError(f"the lab's kube-apiserver: {method} {path}: {error}") from error
        answer: dict[str, Any] = msgspec.json.decode(body)
        if code >= http.client.BAD_REQUEST and code not in tolerated:
            raise Refused(f"{path.partition('?')[0].rpartition('/')[2]}: {answer.get('message', body[:200])}")
        return answer

    def _send(
        self, method: str, path: str, document: Mapping[str, Any] | None, content_type: str
    ) -> tuple[int, bytes]:
        body = None if document is None else msgspec.json.encode(document)
        headers = self._headers | ({"Content-Type": content_type} if body else {})
        connection = self._connection = self._connection or self._connect()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def _connect(self) -> http.client.HTTPConnection:
        sock = self._namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body are two segments
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        try:
            sock.connect(("127.0.0.1", self._port))
            connection.sock = self._tls.wrap_socket(sock, server_hostname="127.0.0.1")
        except OSError:
            sock.close()
            raise
        return connection


def _path(resource: Resource, namespace: str, name: str) -> str:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{within}/{resource.plural}" + (f"/{name}" if name else "")


def _differences(wanted: Mapping[str, Any], held: Mapping[str, Any]) -> Iterator[str]:
    """Where the server would hold something else; defaults for what is not said are no difference."""
    for name in _ALLOCATED & held.get("spec", {}).keys() - wanted.get("spec", {}).keys():
        yield f"it fills in {name}"
    for name in wanted.keys() - {"metadata"}:
        yield from _other(name, wanted[name], held.get(name))


def _other(where: str, wanted: object, held: object) -> Iterator[str]:
    match wanted, held:
        case dict(), dict():
            for name, value in wanted.items():
                yield from _other(f"{where}.{name}", value, held.get(name))
        case list(), list() if len(wanted) == len(held):
            for value, other in zip(wanted, held, strict=True):
                yield from _other(where, value, other)
        case _ if held != wanted and wanted not in _NOTHING:
            yield f"it makes {where} {held!r}, not {wanted!r}"


def _settable(kind: Kind, status: Document) -> Document:
    """A merge keeps what is not named, so what went must be named."""
    return {"loadBalancer": status.get("loadBalancer") or None} if kind is Kind.SERVICE else status
