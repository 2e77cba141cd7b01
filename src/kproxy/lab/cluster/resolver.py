"""Resolver of the cluster's names, in the place of CoreDNS, which comes as an image: UDP, no caches, no zones but one.

It keeps nothing: each question is one read of the API server, so an answer is never older than the question. Records as in
Kubernetes' specification (https://github.com/kubernetes/dns/blob/master/docs/specification.md), A, AAAA and CNAME alone:
Services with cluster IPs, headless ones and their named endpoints, ExternalName. Other names do not exist: nothing outside of
the machine is asked. Message format: RFC 1035, sections 4.1 and 3.1.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from kproxy.lab.cluster.layout import DNS_PORT, control_plane_address, dns_address
from kproxy.model.network import Address, Family, family_of

ZONE = ("cluster", "local")
_HEADER, _QUESTION_END, _RECORD = struct.Struct("!6H"), struct.Struct("!HH"), struct.Struct("!HHHIH")
_RESPONSE, _AUTHORITATIVE, _RECURSION_DESIRED = 0x8000, 0x0400, 0x0100
_NAME_ERROR, _SERVER_FAILURE = 3, 2
_SECONDS, _IN, _POINTER_TO_QUESTION = 5, 1, 0xC00C
_LONGEST = 1232
"""Bytes of a reply; more addresses than fit are left out, as each is as good as another."""

_FAMILIES: Mapping[int, Family] = {1: Family.IPV4, 28: Family.IPV6}
"""By type of the question."""

Document = dict[str, Any]
Lookup = Callable[[str], Document | None]
"""Object at a path of the API server, or None where there is none."""


class RecordType(enum.IntEnum):
    """Types that are answered."""

    A = 1
    CNAME = 5
    AAAA = 28


@dataclass(frozen=True, slots=True)
class Question:
    """Question of a message: its labels in lower case, and the type; ``raw``: the bytes, for the reply."""

    identifier: int
    flags: int
    labels: tuple[str, ...]
    type: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class NameRecords:
    """Records of a name: addresses of both families, or another name."""

    addresses: tuple[Address, ...] = ()
    alias: str = ""


def parse_question(message: bytes) -> Question | None:
    """The first question of a query; None for what is none."""
    if len(message) < _HEADER.size:
        return None
    identifier, flags, questions, *_ = _HEADER.unpack_from(message)
    if flags & _RESPONSE or questions != 1:
        return None
    labels, at = list[str](), _HEADER.size
    while at < len(message) and (size := message[at]):
        labels.append(message[at + 1 : at + 1 + size].decode("ascii", "replace").lower())
        at += 1 + size
    end = at + 1 + _QUESTION_END.size
    if end > len(message):
        return None
    kind, _ = _QUESTION_END.unpack_from(message, at + 1)
    return Question(identifier, flags, tuple(labels), kind, message[_HEADER.size : end])


def reply(question: Question, found: NameRecords | None) -> bytes:
    """Message that answers a question; None: there is no such name."""
    records = _records(question, found) if found else []
    flags = _RESPONSE | _AUTHORITATIVE | (question.flags & _RECURSION_DESIRED)
    flags |= 0 if found else _NAME_ERROR
    return _HEADER.pack(question.identifier, flags, 1, len(records), 0, 0) + question.raw + b"".join(records)


def failure(question: Question) -> bytes:
    """Message that says that the API server did not answer."""
    return _HEADER.pack(question.identifier, _RESPONSE | _SERVER_FAILURE, 1, 0, 0, 0) + question.raw


def _records(question: Question, found: NameRecords) -> Sequence[bytes]:
    if found.alias:
        name = b"".join(bytes((len(label),)) + label.encode() for label in found.alias.rstrip(".").split("."))
        return [_record(RecordType.CNAME, name + b"\0")]
    family = _FAMILIES.get(question.type)
    packed = [_record(question.type, one.packed) for one in found.addresses if family_of(one) is family]
    room = _LONGEST - _HEADER.size - len(question.raw)
    return packed[: room // max(map(len, packed), default=1)]


def _record(kind: int, content: bytes) -> bytes:
    return _RECORD.pack(_POINTER_TO_QUESTION, kind, _IN, _SECONDS, len(content)) + content


def find_name(labels: Sequence[str], lookup: Lookup) -> NameRecords | None:
    """Records of a name below the cluster's zone; None when there is none."""
    if tuple(labels[-3:]) != ("svc", *ZONE) or len(labels) not in {5, 6}:
        return None
    *host, name, namespace = labels[:-3]
    service = lookup(f"/api/v1/namespaces/{namespace}/services/{name}")
    if service is None:
        return None
    spec = service["spec"]
    if spec.get("type") == "ExternalName" and not host:
        return NameRecords(alias=spec["externalName"])
    if spec.get("clusterIP") == "None" or host:
        endpoints = _endpoints(namespace, name, host, lookup)
        return NameRecords(endpoints) if endpoints or not host else None
    return NameRecords(tuple(map(ip_address, spec.get("clusterIPs", ()))))


def _endpoints(namespace: str, name: str, host: Sequence[str], lookup: Lookup) -> tuple[Address, ...]:
    """Addresses of a Service's ready endpoints, or of those that have this hostname."""
    selector = f"labelSelector=kubernetes.io%2Fservice-name%3D{name}"
    slices = lookup(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?{selector}") or {}
    chosen = (
        endpoint
        for item in slices.get("items", ())
        for endpoint in item.get("endpoints") or ()
        if endpoint.get("conditions", {}).get("ready", True)
        and (not host or [endpoint.get("hostname")] == list(host))
    )
    return tuple(ip_address(address) for endpoint in chosen for address in endpoint["addresses"])


class ClusterResolver(asyncio.DatagramProtocol):
    """Server of one socket; ``lookup`` blocks, so it is called in a thread."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup, self._threads = lookup, ThreadPoolExecutor(1)
        self._transport: asyncio.DatagramTransport
        self._tasks = set[asyncio.Task[None]]()

    async def serve(self, sock: socket.socket) -> None:
        """Serve on a bound socket, and own it."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=sock)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """Answer in a task; what is no question gets no answer."""
        if question := parse_question(data):
            task = asyncio.create_task(self._answer(question, addr))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, question: Question, where: tuple[str | Any, int]) -> None:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._threads, find_name, question.labels, self._lookup)
            message = reply(question, found)
        except Exception:  # noqa: BLE001 (whatever the API server did, the resolver goes on)
            message = failure(question)
        self._transport.sendto(message, where)

    def close(self) -> None:
        """Close the socket."""
        self._transport.close()
        self._threads.shutdown(wait=False)


def resolver_documents() -> list[Document]:
    """Service and EndpointSlice by which pods reach the resolver at the address they are given."""
    inside = {"namespace": "kube-system", "name": "kube-dns"}
    port = {"name": "dns", "port": DNS_PORT, "protocol": "UDP"}
    service = {"clusterIP": str(dns_address()), "ports": [port]}
    slice_labels = {"kubernetes.io/service-name": "kube-dns"}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": inside, "spec": service},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**inside, "name": "kube-dns-lab", "labels": slice_labels},
            "addressType": "IPv4",
            "ports": [port],
            "endpoints": [{"addresses": [str(control_plane_address(Family.IPV4))]}],
        },
    ]
