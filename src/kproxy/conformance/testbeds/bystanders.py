"""Conntrack entries that are not the subject's: inserted in a lab, and observed again after every change.

Beside `kproxy.conformance.testbeds.netns`. The entries follow from a case's `UnrelatedEntries` and its addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import Target, UnrelatedEntries, delivered_to
from kproxy.conformance.case.descriptions import SAME_ENTRIES
from kproxy.conformance.testbed import Observation
from kproxy.lab.faults.conntrack_entries import InsertedEntry, entry_identities, insert_entry
from kproxy.lab.network import Network
from kproxy.lab.probes.observation import Socket
from kproxy.model.network import Protocol
from kproxy.spec.outcome import Delivered

HOST_PORT = 8053
"""Port of the node that a CNI would forward to a pod (hostPort): no node port, and no service port."""


@dataclass(slots=True)
class BystanderEntries:
    """Inserted entries of all cases of a lab, with the kernel's IDs at first."""

    network: Network
    known: dict[tuple[str, int], Mapping[InsertedEntry, str]] = field(default_factory=dict)

    async def observe(self, instance: Instance, step: UnrelatedEntries) -> Observation:
        """Insert them, the first time; returns their present state."""
        namespace = self.network[step.node]
        key = (instance.name, id(step))
        if key not in self.known:
            made = bystander_entries(instance, step)
            for entry in made:
                await insert_entry(namespace, entry)
            self.known[key] = await entry_identities(namespace, made)
            return Observation(
                frozenset(), _different(dict.fromkeys(made, ""), self.known[key], compare=False)
            )
        before = self.known[key]
        return Observation(frozenset(), _different(before, await entry_identities(namespace, before)))


def bystander_entries(instance: Instance, step: UnrelatedEntries) -> tuple[InsertedEntry, ...]:
    """Entries of a step; all have a source port of the case's own, the number of its node port."""
    number = instance.destination(step.service.node_port(step.node))[1]
    client = instance.topology.client_address[step.node][instance.family]
    here = instance.topology.node_address[step.node][instance.family]
    pod = Socket(instance.topology.pod_address[step.endpoint][instance.family], number)
    near, beside = (
        _destination(instance, service.cluster_ip) for service in (step.service, step.other_service)
    )
    target, other = (
        _endpoint(instance, step, service.cluster_ip) for service in (step.service, step.other_service)
    )
    if step.at_node_port:
        elsewhere = Socket(client, number)
        return (InsertedEntry(Protocol.UDP, pod, elsewhere, elsewhere),)
    resolver = Socket(client, near.port)
    return (
        InsertedEntry(Protocol.UDP, Socket(client, number), Socket(here, HOST_PORT), target),
        InsertedEntry(Protocol.UDP, pod, resolver, resolver),
        InsertedEntry(Protocol.UDP, pod, beside, other),
        InsertedEntry(Protocol.TCP, pod, near, target),
    )


def _destination(instance: Instance, to: Target) -> Socket:
    address, port, _ = instance.destination(to)
    return Socket(address, port)


def _endpoint(instance: Instance, step: UnrelatedEntries, to: Target) -> Socket:
    (found,) = instance.outcomes(delivered_to(step.endpoint), to)
    assert isinstance(found, Delivered)
    return Socket(found.address, found.port)


def _different(
    before: Mapping[InsertedEntry, str], now: Mapping[InsertedEntry, str], *, compare: bool = True
) -> str:
    gone = [f"{entry} is gone" for entry in before if entry not in now]
    anew = [f"{entry} is another one" for entry in now if compare and now[entry] != before[entry]]
    return "; ".join([*gone, *anew]) or SAME_ENTRIES
