"""Object state of a case: applies steps and yields the API writes (and faults) for a testbed.

Pure; also read as a `kproxy.model.api.Cluster` by the simulator and the double-entry test. The netns testbed writes
the changes to an API server.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.kubernetes_objects import Document, kubernetes_objects
from kproxy.conformance.binding.lab_objects import (
    node_document,
    node_documents,
    node_facts,
    service_cidr_document,
)
from kproxy.conformance.case import (
    AddNodeAddress,
    AddServiceCidr,
    AllowWrites,
    Apply,
    CaseService,
    CleanUp,
    DelayWrites,
    Delete,
    DuringWatchFault,
    FailWrites,
    Flushed,
    FlushRules,
    ReleasePort,
    Restart,
    SetTaints,
    SetZone,
    StartNodeDeletion,
    Step,
    TakePort,
    WatchFault,
)
from kproxy.lab.topology import LAB, Topology
from kproxy.model import api
from kproxy.model.network import Family
from kproxy.spec.node import NodeFacts

Key = tuple[str, str, str]
"""(kind, namespace, name) of an object."""


@dataclass(frozen=True, slots=True)
class Put:
    """Create or replace an object."""

    document: Document


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete an object."""

    key: Key


@dataclass(frozen=True, slots=True)
class RestartProxy:
    """Kill a node's proxy, make the changes while it is down, start it."""

    node: str
    while_down: tuple[Change, ...]
    masquerade_bit: int | None = None
    without_slices: float = 0.0


@dataclass(frozen=True, slots=True)
class RefuseWrites:
    """Start to refuse the kernel writes of a node's proxy, of one family or (None) both."""

    node: str
    family: Family | None = None


@dataclass(frozen=True, slots=True)
class SlowWrites:
    """Start to make each kernel write of a node's proxy begin so many seconds late."""

    node: str
    seconds: float


@dataclass(frozen=True, slots=True)
class AcceptWrites:
    """End a `RefuseWrites` or `SlowWrites`."""

    node: str


@dataclass(frozen=True, slots=True)
class RemoveRules:
    """Remove rules from a node, by another program."""

    node: str
    what: Flushed


@dataclass(frozen=True, slots=True)
class RemoveProxy:
    """Kill a node's proxy, and remove it by its own means."""

    node: str


@dataclass(frozen=True, slots=True)
class OccupyPort:
    """Listen at a TCP port of a node, at all addresses, or (``ends``) no more."""

    node: str
    port: int
    ends: bool = False


@dataclass(frozen=True, slots=True)
class WithholdEvents:
    """Make changes while proxies' watches fail; they learn of them afterwards."""

    fault: WatchFault
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class AddAddress:
    """Add a node's additional address of a family, `Topology.gained_address`."""

    node: str
    family: Family


NodeFault = RefuseWrites | SlowWrites | AcceptWrites | RemoveRules | RemoveProxy | OccupyPort
"""Changes of a node's kernel or processes, of no object."""

Change = Put | Remove | RestartProxy | AddAddress | NodeFault | WithholdEvents


def document_key(document: Document) -> Key:
    """Key of an object."""
    metadata = document["metadata"]
    return (document["kind"], metadata.get("namespace", ""), metadata["name"])


def lab_objects(topology: Topology = LAB) -> dict[Key, Document]:
    """Objects that every lab starts with: Nodes and the ServiceCIDR."""
    documents = (*node_documents(topology), service_cidr_document(topology))
    return {document_key(document): document for document in documents}


@dataclass(slots=True)
class World:
    """Objects of one instance, beside the lab's own."""

    instance: Instance
    objects: dict[Key, Document] = field(init=False)
    nodes_with_added_address: set[str] = field(default_factory=set)
    """Nodes with an address added since the start."""
    late_address_nodes: set[str] = field(default_factory=set)
    """Those of `nodes_with_added_address` whose proxy has not restarted since.

    It may know the address only if it watches addresses.
    """
    frozen_objects: dict[str, dict[Key, Document]] = field(default_factory=dict)
    """Objects by node that its rules reflect where these are not all: those before writes began to fail, or none, after a cleanup."""

    def __post_init__(self) -> None:
        """Begin with the objects of the lab."""
        self.objects = lab_objects(self.instance.topology)

    def apply_step(self, step: Step) -> tuple[Change, ...]:
        """Apply a step that changes objects; returns the writes, Services before slices."""
        match step:
            case Apply(services=services):
                return tuple(change for service in services for change in self._apply(service))
            case Delete(service=service, keep_slices=keep_slices):
                return self._delete(service, keep_slices=keep_slices)
            case SetZone() | SetTaints() | StartNodeDeletion():
                return (self._put(_node(self.instance.topology, step)),)
            case AddServiceCidr():
                return (self._put(service_cidr_document(self.instance.topology, second=True)),)
            case AddNodeAddress(node=node):
                self.nodes_with_added_address.add(node)
                self.late_address_nodes.add(node)
                return (AddAddress(node, self.instance.family),)
            case Restart(node=node, while_down=meanwhile):
                self.late_address_nodes.discard(node)
                changes = self.apply_step(meanwhile) if meanwhile else ()
                return (RestartProxy(node, changes, step.masquerade_bit, step.without_slices),)
            case _:
                return self._apply_fault(step)

    def _apply_fault(self, step: Step) -> tuple[Change, ...]:
        match step:
            case FailWrites(node=node, family=family):
                if family in {None, self.instance.family}:
                    self.frozen_objects.setdefault(node, dict(self.objects))
                return (RefuseWrites(node, family),)
            case DelayWrites(node=node, seconds=seconds):
                return (SlowWrites(node, seconds),)
            case AllowWrites(node=node):
                self.frozen_objects.pop(node, None)
                return (AcceptWrites(node),)
            case FlushRules(node=node, what=what):
                return (RemoveRules(node, what),)
            case CleanUp(node=node):
                self.frozen_objects[node] = lab_objects(self.instance.topology)
                return (RemoveProxy(node),)
            case TakePort(node=node, service=service) | ReleasePort(node=node, service=service):
                port = self.instance.health_check_port(service)
                return (OccupyPort(node, port, ends=isinstance(step, ReleasePort)),)
            case DuringWatchFault(fault=deaf, changes=steps):
                return (
                    WithholdEvents(deaf, tuple(change for one in steps for change in self.apply_step(one))),
                )
            case _:
                return ()

    def _apply(self, service: CaseService) -> list[Change]:
        wanted = kubernetes_objects(self.instance, service)
        kept = set(map(document_key, wanted))
        stale = [key for key in self._slices_of(service.name) if key not in kept]
        return [*map(self._put, wanted), *map(self._remove, stale)]

    def _delete(self, service: CaseService, *, keep_slices: bool) -> tuple[Change, ...]:
        keys = [("Service", self.instance.namespace, service.name)]
        if not keep_slices:
            keys += self._slices_of(service.name)
        return tuple(self._remove(key) for key in keys)

    def _slices_of(self, name: str) -> list[Key]:
        prefix = f"{name}-"
        return [
            key
            for key in self.objects
            if key[0] == "EndpointSlice" and key[2].rsplit("-", 2)[0] + "-" == prefix
        ]

    def _put(self, document: Document) -> Put:
        self.objects[document_key(document)] = document
        return Put(document)

    def _remove(self, key: Key) -> Remove:
        del self.objects[key]
        return Remove(key)

    def clear(self) -> tuple[Change, ...]:
        """Remove all objects of the instance."""
        own = [key for key in self.objects if key[1] == self.instance.namespace]
        return tuple(self._remove(key) for key in own)

    def facts(self, node: str) -> NodeFacts:
        """Facts about a node, for the oracle."""
        facts = node_facts(node, self.instance.case.profile, self.instance.topology)
        if node not in self.nodes_with_added_address:
            return facts
        more = frozenset({self.instance.topology.gained_address[node][self.instance.family]})
        late = more if node in self.late_address_nodes else frozenset()
        return replace(facts, addresses=facts.addresses | more, late_addresses=late)

    def cluster(self, node: str = "") -> api.Cluster:
        """The objects as proxy and oracle read them; for a node: those that its rules can reflect."""
        objects = self.frozen_objects.get(node, self.objects)
        return api.parse_cluster(msgspec.json.encode({"kind": "List", "items": list(objects.values())}))


def _node(topology: Topology, step: SetZone | SetTaints | StartNodeDeletion) -> Document:
    match step:
        case SetZone(node=node, zone=zone):
            return node_document(topology, node, zone)
        case SetTaints(node=node, keys=keys):
            return node_document(topology, node, topology.zones[node], keys)
        case StartNodeDeletion(node=node):
            return node_document(topology, node, topology.zones[node], deleting=True)
