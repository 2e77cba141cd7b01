"""Servers that a lab needs for the probes of cases. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kproxy.conformance.binding.bind import NODE_PORT_KINDS, Instance
from kproxy.conformance.case import Case, CaseService, Open, Port, Probe
from kproxy.conformance.testbeds.interpret import HOST
from kproxy.model.network import Protocol


def listeners(instances: Sequence[Instance]) -> Iterator[tuple[str, int, Protocol, str]]:
    """Namespace, port, protocol and name of every server that these cases need.

    Every node port that is probed has a daemon of each node behind it: a packet that the proxy does not rewrite gets
    that daemon's reply, and is known to be untouched.
    """
    for instance in instances:
        taken = set(_ports_to_send_from(instance))
        for service in instance.services:
            for port in _served(instance.case, service):
                for endpoint in service.endpoints:
                    number = instance.target_port(service, port, endpoint.shift)
                    yield endpoint.on, number, port.protocol, endpoint.on
                number = instance.node_port(service, port)
                if number and number not in taken:
                    for node in instance.topology.nodes:
                        yield node, number, port.protocol, HOST + node
        for step in instance.case.steps:
            bare = isinstance(step, Probe) and step.init_chunk_only
            if isinstance(step, Probe | Open) and step.to.kind in NODE_PORT_KINDS and not bare:
                _, number, protocol = instance.destination(step.to)
                if number in taken:
                    continue
                yield step.to.node, number, protocol, HOST + step.to.node


def _served(case: Case, service: CaseService) -> Iterator[Port]:
    """Ports that endpoints of a Service listen on."""
    sockets = case.opens_sctp_sockets
    return (port for port in service.ports if sockets or port.protocol is not Protocol.SCTP)


def _ports_to_send_from(instance: Instance) -> Iterator[int]:
    """Port numbers without a server, since a sender uses them as its source port."""
    for step in instance.case.steps:
        if isinstance(step, Probe | Open) and step.from_port_of is not None:
            yield instance.destination(step.from_port_of)[1]
