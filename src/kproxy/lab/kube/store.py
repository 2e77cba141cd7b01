"""Writer of objects to a kube-apiserver with the interface of the lab's own store: whole objects, synchronously.

Server-side apply, so that an object is created or changed by the same request; a status goes to its own subresource.
Blocking, since the harness writes without awaiting.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import msgspec

from kproxy.lab.apiserver.resources import RESOURCES, ApiResource, Document, ResourceKind
from kproxy.lab.namespaces import LabError, Namespace

PATIENCE = 30.0
APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_OWNER = "fieldManager=kproxy-lab&force=true"
_NAMESPACES = ApiResource(
    kind=ResourceKind.NAMESPACE, group="", version="v1", plural="namespaces", namespaced=False
)
_BY_KIND = {resource.kind: resource for resource in reversed(RESOURCES)}
_IMMUTABLE = "may not change once set"
_ALLOCATED = frozenset({"clusterIP", "clusterIPs"})
_NOTHING: tuple[object, ...] = (None, "", [], {}, False, 0)


class NotAdmitted(LabError):
    """Object that a real API server does not admit; ``str()`` is its reason."""


class KubeStore:
    """Objects of a kube-apiserver, wherever it is.

    ``connect`` makes a connection to it; ``headers`` is called for each request, as tokens may be renewed.
    """

    def __init__(
        self, connect: Callable[[], http.client.HTTPConnection], headers: Callable[[], Mapping[str, str]]
    ) -> None:
        self._connect, self._headers = connect, headers
        self._connection: http.client.HTTPConnection | None = None
        self._known_namespaces: set[str] = set()

    def put(self, kind: ResourceKind, document: Mapping[str, Any]) -> None:
        """Create or replace an object; one with an immutable field changed is deleted and created anew.

        Raises `NotAdmitted`, `LabError`.
        """
        whole = dict(document)
        status = whole.pop("status", None)
        namespace = whole["metadata"].get("namespace", "")
        if namespace:
            self.make_namespace(namespace)
        path = _path(_BY_KIND[kind], namespace, whole["metadata"]["name"])
        try:
            held = self.request("PATCH", f"{path}?{_OWNER}", whole, APPLY)
        except NotAdmitted as reason:
            if _IMMUTABLE not in str(reason):
                raise
            self.delete(kind, namespace, whole["metadata"]["name"])
            held = self.request("PATCH", f"{path}?{_OWNER}", whole, APPLY)
        if status is not None and not _has_status(kind, held, status):
            self.request("PATCH", f"{path}/status", {"status": _settable(kind, status)}, _MERGE)

    def admission_error(self, kind: ResourceKind, document: Mapping[str, Any]) -> str | None:
        """Reason why the server would not store this object as it is; None when it would. Writes nothing."""
        whole = {name: value for name, value in document.items() if name != "status"}
        namespace = whole["metadata"].get("namespace", "")
        if namespace:
            self.make_namespace(namespace)
        path = _path(_BY_KIND[kind], namespace, whole["metadata"]["name"])
        try:
            held = self.request("PATCH", f"{path}?{_OWNER}&dryRun=All", whole, APPLY)
        except NotAdmitted as reason:
            return str(reason)
        return next(_differences(whole, held), None)

    def delete(self, kind: ResourceKind, namespace: str, name: str) -> None:
        """Delete an object; KeyError when there is none."""
        status = self.request("DELETE", _path(_BY_KIND[kind], namespace, name), None, "", tolerated=(404,))
        if status.get("code") == http.client.NOT_FOUND:
            raise KeyError(name)

    def documents(self, kind: ResourceKind) -> list[Document]:
        """All objects of a kind."""
        items: list[Document] = self.request("GET", _path(_BY_KIND[kind], "", ""), None, "")["items"]
        return items

    def ready(self) -> bool:
        """True if the server serves, with all it creates for itself at its start."""
        try:
            return self._send("GET", "/readyz", None, "")[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def close(self) -> None:
        """Close the connection to the server, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def make_namespace(self, name: str, labels: Mapping[str, str] = MappingProxyType({})) -> None:
        """Create a namespace, unless this store has created it before."""
        if name not in self._known_namespaces:
            metadata = {"name": name, "labels": dict(labels)}
            made = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            self.request("PATCH", f"{_path(_NAMESPACES, '', name)}?{_OWNER}", made, APPLY)
            self._known_namespaces.add(name)

    def knows(self, namespace: str) -> None:
        """Register an existing namespace: it is not created, and keeps its labels."""
        self._known_namespaces.add(namespace)

    def request(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        tolerated: tuple[int, ...] = (),
    ) -> dict[str, Any]:
        """Send one request; returns the response's JSON.

        Raises `NotAdmitted` for an error not ``tolerated``, `LabError` without a response.
        """
        try:
            code, body = self._send(method, path, document, content_type)
        except (OSError, http.client.HTTPException) as error:
            at = self._connect()
            raise LabError(f"the API server at {at.host}:{at.port}: {method} {path}: {error}") from error
        answer: dict[str, Any] = msgspec.json.decode(body)
        if code >= http.client.BAD_REQUEST and code not in tolerated:
            raise NotAdmitted(
                f"{path.partition('?')[0].rpartition('/')[2]}: {answer.get('message', body[:200])}"
            )
        return answer

    def _send(
        self, method: str, path: str, document: Mapping[str, Any] | None, content_type: str
    ) -> tuple[int, bytes]:
        body = None if document is None else msgspec.json.encode(document)
        headers = {"Accept": "application/json", **self._headers()} | (
            {"Content-Type": content_type} if body else {}
        )
        if self._connection is not None:
            with suppress(
                http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError
            ):  # closed while idle
                return self._exchange(self._connection, method, path, body, headers)
        self._connection = self._connect()
        return self._exchange(self._connection, method, path, body, headers)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise


def on_loopback(namespace: Namespace, port: int, tls: ssl.SSLContext) -> http.client.HTTPConnection:
    """Connection to a server that listens on loopback in a namespace."""
    sock = namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.settimeout(PATIENCE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body are two segments
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        sock.connect(("127.0.0.1", port))
        connection.sock = tls.wrap_socket(sock, server_hostname="127.0.0.1")
    except OSError:
        sock.close()
        raise
    return connection


def _path(resource: ApiResource, namespace: str, name: str) -> str:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{within}/{resource.plural}" + (f"/{name}" if name else "")


def _differences(wanted: Mapping[str, Any], held: Mapping[str, Any]) -> Iterator[str]:
    """Fields that the server would store differently; defaults for absent fields are no difference."""
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


def _settable(kind: ResourceKind, status: Document) -> Document:
    """Status for a merge patch, which keeps absent fields, so removed ones are set to null."""
    return {"loadBalancer": status.get("loadBalancer") or None} if kind is ResourceKind.SERVICE else status


def _has_status(kind: ResourceKind, held: Document, wanted: Document) -> bool:
    """True if a Service's status is as it should be already, as that of a new one without addresses is."""
    there = held.get("status", {}).get("loadBalancer") or None
    return kind is ResourceKind.SERVICE and there == _settable(kind, wanted)["loadBalancer"]
