"""Parser of kubectl's output into a cluster: Lists and single objects, YAML or JSON, one document or several.

Beside the objects that a service proxy reads it collects pods by name: those that EndpointSlices refer to
(``targetRef``), and Pod objects where they are in the dump too. Opens nothing: bytes come in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from kproxy.documents import syntax_error
from kproxy.model import api
from kproxy.model.network import Address, Family, family_of, parse_address

KUBECTL = "kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml"
"""Command that prints all objects needed."""

Document = dict[str, Any]


class CannotExplain(Exception):
    """Arguments or objects that cannot be explained; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class Pod:
    """Pod that the dump names; ``node`` is empty where no object gives it."""

    namespace: str
    name: str
    node: str
    addresses: tuple[Address, ...]

    def __str__(self) -> str:
        """Name in explanations."""
        return f"pod {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Dump:
    """Objects of the dump, and its pods by (namespace, name)."""

    cluster: api.Cluster
    pods: tuple[Pod, ...]
    documents: tuple[Document, ...] = ()
    """Objects as they were printed."""

    def pod_at(self, address: Address) -> Pod | None:
        """Pod that has an address of its own; None for none."""
        return next((pod for pod in self.pods if address in pod.addresses), None)

    def node_with(self, address: Address) -> api.Node | None:
        """Node that lists an address as its own; None for none."""
        return next((n for n in self.cluster.nodes.values() if address in listed_addresses(n)), None)


def listed_addresses(node: api.Node) -> tuple[Address, ...]:
    """Addresses that a Node object lists."""
    found = (parse_address(entry.address) for entry in node.status.addresses or [])
    return tuple(address for address in found if address is not None)


def first_of_family(addresses: Iterable[Address], family: Family) -> Address | None:
    """First address of a family; None for none."""
    return next((address for address in addresses if family_of(address) is family), None)


@contextmanager
def of_option(name: str, value: str) -> Iterator[None]:
    """Name the option, if it was given, in the message of a `CannotExplain` that names none."""
    try:
        yield
    except CannotExplain as reason:
        if not value or str(reason).startswith("--"):
            raise
        raise CannotExplain(f"{name} {value}: {reason}") from reason


def parse_dump(texts: Iterable[tuple[str, bytes]]) -> Dump:
    """Dump of some files, given as (name, contents); of an object that occurs twice the last counts.

    Raises `CannotExplain` for what is neither YAML nor JSON, and when Services or Nodes are missing.
    """
    files = list(texts)
    items = [item for name, text in files for item in _items(name, text)]
    cluster = api.parse_cluster(msgspec.json.encode({"kind": "List", "items": items}))
    for missing, found in (("Service", cluster.services), ("Node", cluster.nodes)):
        if not found:
            names = ", ".join(name for name, _ in files)
            invalid = [one.reason for one in cluster.rejected if one.kind == missing]
            why = f"no valid {missing} is in it: {invalid[0]}" if invalid else f"there is no {missing} in it"
            raise CannotExplain(f"{names}: {why}; `{KUBECTL}` prints all that is needed")
    return Dump(cluster, _pods(items), tuple(items))


def _items(name: str, text: bytes) -> Iterator[Document]:
    try:
        documents = [msgspec.json.decode(text)] if text.lstrip()[:1] in {b"{", b"["} else _yaml(text)
    except yaml.YAMLError as error:
        raise CannotExplain(f"{name}: neither YAML nor JSON: {syntax_error(error)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CannotExplain(f"{name}: neither YAML nor JSON: {error}") from error
    for document in documents:
        yield from _flattened(name, document)


def _yaml(text: bytes) -> list[Any]:
    """All documents; timestamps stay text."""
    return list(yaml.load_all(text, Loader=_Loader))


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml: ten times as fast
    yaml_implicit_resolvers = {  # noqa: RUF012 (how PyYAML has it)
        first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:timestamp"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _flattened(name: str, document: object) -> Iterator[Document]:
    match document:
        case None:
            return
        case list(members):
            parts: list[object] = members
        case {"kind": str(kind), "items": list(members)} if kind.endswith("List"):
            parts = [_with_kind(member, kind.removesuffix("List")) for member in members]
        case {"kind": "List", "items": _}:
            raise CannotExplain(f"{name}: the items of a List are no list")
        case {"kind": str()}:
            yield document  # type: ignore[misc]
            return
        case _:
            raise CannotExplain(f"{name}: that is no Kubernetes object: it has no kind")
    for part in parts:
        yield from _flattened(name, part)


def _with_kind(member: object, kind: str) -> object:
    """Member of a list; in a ServiceList and its like the members' kind may be left out."""
    return {"kind": kind, **member} if kind and isinstance(member, dict) else member


def _pods(items: Iterable[Document]) -> tuple[Pod, ...]:
    """Every pod that is named, with all addresses that any object gives it."""
    merged: dict[api.Key, Pod] = {}
    for found in _named(items):
        known = merged.get((found.namespace, found.name), found)
        addresses = tuple(dict.fromkeys((*known.addresses, *found.addresses)))
        merged[found.namespace, found.name] = Pod(
            found.namespace, found.name, known.node or found.node, addresses
        )
    return tuple(merged.values())


def _named(items: Iterable[Document]) -> Iterator[Pod]:
    for item in items:
        reader = _READERS.get(item["kind"])
        if reader is not None:
            with suppress(msgspec.ValidationError):  # `api.parse_cluster` has reported it
                yield from reader(item)


class _Object(msgspec.Struct, rename="camel"):
    pass


class _Reference(_Object):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _Endpoint(_Object):
    addresses: list[str] | None = None
    node_name: str | None = None
    target_ref: _Reference | None = None


class _Slice(_Object):
    metadata: api.Metadata
    endpoints: list[_Endpoint] | None = None


class _PodIP(_Object):
    ip: str = ""


class _PodStatus(_Object):
    pod_ips: list[_PodIP] | None = msgspec.field(name="podIPs", default=None)


class _PodSpec(_Object):
    node_name: str = ""


class _Pod(_Object):
    metadata: api.Metadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


def _of_slice(item: Document) -> Iterator[Pod]:
    piece = msgspec.convert(item, _Slice)
    for endpoint in piece.endpoints or []:
        to = endpoint.target_ref
        if to is not None and to.kind == "Pod":
            namespace = to.namespace or piece.metadata.namespace
            yield _pod(namespace, to.name, endpoint.node_name or "", endpoint.addresses or [])


def _of_pod(item: Document) -> Iterator[Pod]:
    pod = msgspec.convert(item, _Pod)
    texts = [entry.ip for entry in pod.status.pod_ips or []]
    yield _pod(pod.metadata.namespace, pod.metadata.name, pod.spec.node_name, texts)


_READERS: dict[str, Callable[[Document], Iterator[Pod]]] = {"EndpointSlice": _of_slice, "Pod": _of_pod}


def _pod(namespace: str, name: str, node: str, texts: Iterable[str]) -> Pod:
    found = (parse_address(text) for text in texts)
    return Pod(namespace, name, node, tuple(address for address in found if address is not None))
