"""Networks of pods: a network namespace each, with a link to its node and the lowest free address.

The lowest, so that addresses are soon reused: packets that still go to the old pod then reach a wrong one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kproxy.lab import namespaces, wiring
from kproxy.lab.namespaces import Namespace
from kproxy.lab.processes import run_in
from kproxy.model.network import Address, Family
from tests.kind.standin import wires

_FLAG = {Family.IPV4: "-4", Family.IPV6: "-6"}
_SETTLING_POLL = 0.002
_HOST = 0


@dataclass(frozen=True, slots=True)
class Place:
    """A pod's network; ``number`` 0: its node's own (hostNetwork)."""

    number: int
    namespace: Namespace
    addresses: tuple[Address, ...]


class Places:
    """The pods' places on one node."""

    def __init__(self, node: str, namespace: Namespace) -> None:
        self._node, self._namespace = node, namespace
        self._taken: dict[int, Place] = {}
        self.own = tuple(wires.node_address(node, family) for family in Family)
        """The node's addresses, IPv4 first."""

    def on_host(self) -> Place:
        """The node's own network, as pods with ``hostNetwork`` have it."""
        return Place(_HOST, self._namespace, self.own)

    async def take(self) -> Place:
        """A new namespace with the lowest free address, ready for packets."""
        number = next(n for n in range(2, 255) if n not in self._taken)
        addresses = tuple(wires.pod_address(self._node, number, family) for family in Family)
        place = self._taken[number] = Place(number, namespaces.create_namespace(f"pod-{number}"), addresses)
        pod, interface = place.namespace, _interface(number)
        pod.set(wiring.sysctls(forwards=True))
        await run_in(self._namespace, ("ip", "-batch", "-"), wires.pod_links(interface, pod.path))
        for family, flag in _FLAG.items():
            inside = wires.pod_inside(self._node, number, family)
            outside = wires.pod_on_node(self._node, number, interface, family)
            await run_in(pod, ("ip", flag, "-batch", "-"), inside)
            await run_in(self._namespace, ("ip", flag, "-batch", "-"), outside)
        for end in (pod, self._namespace):
            end.activate_links()
            while not end.addresses_settled():  # noqa: ASYNC110 (the kernel tells nobody)
                await asyncio.sleep(_SETTLING_POLL)
        return place

    async def leave(self, place: Place) -> None:
        """Give its address back; nothing of it is left."""
        if place.number != _HOST:
            await run_in(self._namespace, ("ip", "link", "del", _interface(place.number)))
            place.namespace.close()
            del self._taken[place.number]


def _interface(number: int) -> str:
    return f"pod{number}"
