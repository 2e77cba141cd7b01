"""History of objects: every state that a node's rules may reflect at a time. Pure.

Theory of operation. A proxy learns of each object by itself: Services and EndpointSlices come by different watches, a
relist may skip versions, and syncs fall anywhere. So within the time that convergence may take, its rules may reflect
any version of each object that was current then, in any combination; once everything has converged, only the present.
A fault of the node or the API server makes that window longer, until the time by which a proxy must have recovered: it
begins `CONVERGENCE` before the fault, or before an earlier one from which the node had not recovered then. When a client
comes back to an API server is its own affair, within bounds; once all have come, and were sent all there is, the time for
convergence begins.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from math import inf, prod
from types import MappingProxyType

import msgspec

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.binding.world import Key, Put, Remove, World
from kproxy.model import api
from kproxy.universes.schedule import CONVERGENCE, FaultKind, Schedule, TimedFault

MOST_STATES = 2000
"""Largest number of states that a packet is compared with."""

SOON = 0.1
"""Seconds within which an undisturbed proxy applies a change: a packet on its way then may meet both the old rules and the new."""


class TooManyStates(Exception):
    """Window with more than `MOST_STATES` states."""


class ObjectHistory:
    """Versions of every object, and their times in seconds.

    ``caught_up``: time at which all watches had been sent all there is after a fault, by its number, where that was seen.
    """

    def __init__(self, schedule: Schedule, caught_up: Mapping[int, float] = MappingProxyType({})) -> None:
        self._faults = schedule.faults
        self._recovered = {
            fault: min(fault.recovered, caught_up.get(number, inf) + CONVERGENCE)
            for number, fault in enumerate(schedule.faults)
        }
        self.instance = Instance(schedule.case, schedule.family, 0, 0)
        self.world = World(self.instance)
        self._versions: dict[Key, tuple[list[float], list[Document | None]]] = {}
        for key, document in self.world.objects.items():
            self._add(float("-inf"), key, document)
        for change in schedule.changes:
            for write in self.world.apply_step(change.step):
                if isinstance(write, Put):
                    metadata = write.document["metadata"]
                    kind = write.document["kind"]
                    key = (kind, metadata.get("namespace", ""), metadata["name"])
                    self._add(change.time_of(kind), key, write.document)
                elif isinstance(write, Remove):
                    self._add(change.time_of(write.key[0]), write.key, None)
        self._clusters: dict[tuple[int, ...], api.Cluster] = {}

    def _add(self, at: float, key: Key, document: Document | None) -> None:
        times, versions = self._versions.setdefault(key, ([float("-inf")], [None]))
        times.append(at)
        versions.append(document)

    def window(self, node: str, at: float) -> float:
        """Earliest time whose state a node's rules may still reflect at a time."""
        undisturbed = at
        while earlier := [
            fault.at
            for fault in self._faults
            if fault.concerns(node) and fault.at < undisturbed < self._recovered[fault]
        ]:
            undisturbed = min(earlier)
        return undisturbed - CONVERGENCE

    def is_disturbed(self, node: str, at: float) -> bool:
        """True while a fault lasts that concerns a node, and until everything must be in effect again."""
        return any(fault.concerns(node) and fault.at <= at < self._recovered[fault] for fault in self._faults)

    def faults(self, node: str, begin: float, end: float) -> tuple[FaultKind, ...]:
        """Faults that a node has between two times, or has not recovered from."""
        since = self.window(node, begin)
        return tuple(f.kind for f in self._faults if f.concerns(node) and since <= f.at <= end)

    def changes_mode(self, node: str, at: float) -> bool:
        """True while a node's proxy goes over to another mode, or comes back: no clause says how."""
        return any(
            fault.kind is FaultKind.MODE_CHANGED
            and fault.node == node
            and begin <= at < self._taken_over(node, begin)
            for fault in self._faults
            for begin in (fault.at, fault.end)
        )

    def has_lost_rules(self, node: str, at: float) -> bool:
        """True from when another program has removed a node's rules until its proxy must have written them again."""
        return any(
            fault.kind is FaultKind.RULES_LOST
            and fault.node == node
            and fault.at <= at < self._written_again(fault)
            for fault in self._faults
        )

    def _written_again(self, lost: TimedFault) -> float:
        """Time by which rules that were lost are there again: later where the proxy itself is kept from that, not the API server."""
        until = self._recovered[lost]
        for fault in sorted(self._faults, key=lambda fault: fault.at):
            if fault.node == lost.node and fault.at < until:
                until = max(until, self._recovered[fault])
        return until

    def has_lost_link(self, begin: float, end: float) -> bool:
        """True if a node's link is down at some time between two, or all that its packets need may not be there again."""
        return any(
            fault.kind is FaultKind.LINK_DOWN and fault.at <= end and begin <= self._recovered[fault]
            for fault in self._faults
        )

    def takes_no_connections(self, begin: float, end: float) -> bool:
        """True if connection tracking is full at some time between two, or was just before: it may have given up entries of datagrams."""
        return any(
            fault.kind is FaultKind.CONNTRACK_FULL and fault.at <= end and begin <= fault.end + CONVERGENCE
            for fault in self._faults
        )

    def changes(self, service: str, until: float) -> list[float]:
        """Times at which a Service itself was written, the latest first."""
        times = {
            t for key, (times, _) in self._versions.items() if key[::2] == ("Service", service) for t in times
        }
        return sorted((t for t in times if -inf < t <= until), reverse=True)

    def is_unseen(self, node: str, at: float) -> bool:
        """True if a node had no proxy at a time, or one that had not served yet, or that another fault held back until it ended."""
        return any(
            self._held_back(node, begin) <= at <= self._taken_over(node, end)
            for fault in self._faults
            if fault.node == node
            for begin, end in _without_proxy(fault)
        )

    def _held_back(self, node: str, end: float) -> float:
        """Time since which a proxy that ends then need not have written anything, because of other faults."""
        since = end
        for fault in sorted(self._faults, key=lambda fault: fault.at, reverse=True):
            if (
                not _without_proxy(fault)
                and fault.concerns(node)
                and fault.at < since < self._recovered[fault]
            ):
                since = fault.at
        return since

    def _taken_over(self, node: str, begin: float) -> float:
        """Time by which a proxy that starts at ``begin`` serves: later where another fault keeps it from that."""
        until = begin + CONVERGENCE
        for fault in sorted(self._faults, key=lambda fault: fault.at):
            if fault.kind is not FaultKind.MODE_CHANGED and fault.concerns(node) and fault.at < until:
                until = max(until, self._recovered[fault])
        return until

    def is_changing(self, service: str, node: str, begin: float, end: float) -> bool:
        """True if a node's rules for a Service may change between two times: it was written just before, or a sync is late."""
        since = self.window(node, begin) if self.is_disturbed(node, begin) else begin - SOON
        return any(len(self._span(key, service, since, end)) > 1 for key in self._versions)

    def clusters(self, service: str, begin: float, end: float) -> Iterator[api.Cluster]:
        """States between two times, as far as a Service is concerned, each once. Raises `TooManyStates`.

        The latest comes first; then those in which no object is behind another, which most packets meet; then all others, where
        they are not too many.
        """
        keys = list(self._versions)
        spans = [self._span(key, service, begin, end)[::-1] for key in keys]
        yield self._cluster(keys, latest := tuple(span[0] for span in spans))
        together = self._together(keys, spans)
        for choice in together:
            if choice != latest:
                yield self._cluster(keys, choice)
        if prod(map(len, spans)) > MOST_STATES:
            raise TooManyStates(f"it may reflect more than {MOST_STATES} states")
        for choice in itertools.filterfalse({latest, *together}.__contains__, itertools.product(*spans)):
            yield self._cluster(keys, choice)

    def _together(self, keys: Sequence[Key], spans: Sequence[Sequence[int]]) -> dict[tuple[int, ...], None]:
        """Versions of all objects that were current at one time, the latest first; ``spans``: of each object its versions, the latest first."""
        histories = [self._versions[key][0] for key in keys]
        times = {times[number] for times, span in zip(histories, spans, strict=True) for number in span}
        return {
            tuple(
                min(max(bisect_right(times, at) - 1, span[-1]), span[0])
                for times, span in zip(histories, spans, strict=True)
            ): None
            for at in sorted(times, reverse=True)
        }

    def _span(self, key: Key, service: str, begin: float, end: float) -> Sequence[int]:
        """Numbers of an object's versions between two times; of other Services' objects the last alone."""
        times = self._versions[key][0]
        last = bisect_right(times, end) - 1
        if not _belongs(key, service):
            return (last,)
        return range(bisect_right(times, begin) - 1, last + 1)

    def _cluster(self, keys: Sequence[Key], choice: tuple[int, ...]) -> api.Cluster:
        if choice not in self._clusters:
            chosen = (self._versions[key][1][number] for key, number in zip(keys, choice, strict=True))
            items = [document for document in chosen if document is not None]
            text = msgspec.json.encode({"kind": "List", "items": items})
            self._clusters[choice] = api.parse_cluster(text)
        return self._clusters[choice]


def _without_proxy(fault: TimedFault) -> tuple[tuple[float, float], ...]:
    """Times at which a fault ends a node's proxy, each with that of the next one's start.

    One that is killed in a write may have done some part of all that it was to do since its writes are slow.
    """
    match fault.kind:
        case (
            FaultKind.PROXY_KILLED
            | FaultKind.PROXY_RESTARTED
            | FaultKind.PROXY_CRASHED
            | FaultKind.PROXY_REPLACED
        ):
            return ((fault.at, fault.end),)
        case FaultKind.MODE_CHANGED:
            return ((fault.at, fault.at), (fault.end, fault.end))
        case _:
            return ()


def _belongs(key: Key, service: str) -> bool:
    """True of a Service, its EndpointSlices (``web-0-ipv4``) and all Nodes."""
    kind, _, name = key
    if kind == "Node":
        return True
    return name == service if kind == "Service" else name.startswith(f"{service}-")
