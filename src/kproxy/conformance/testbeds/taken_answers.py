"""Answers that IPVS of another node takes for those of another connection: silence then proves nothing about a proxy.

IPVS finds the connection of an answer by client and endpoint only (``ip_vs_conn_out_get`` in Linux's
net/netfilter/ipvs/ip_vs_conn.c): the answer does not have the address that the client sent to. Let node b have a
connection of its own, from port P to a node port of node a, and IPVS of a forward it to an endpoint there. For as long as
that connection is known, 10 s after a reset and 120 s after its end, node b may masquerade another connection to the same
endpoint with port P: its connection tracking sees two destinations. IPVS of a then translates the endpoint's answers to
the second as if they were of the first, and b gets them from a's node port. The ports are drawn by the kernel, and one
masqueraded connection in 65,000 for each such connection meets this; no proxy can prevent it.

The netns testbed looks here at what sent no answer, so that this is not counted as a proxy's failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address

from kproxy.conformance.testbed import HarnessError
from kproxy.conformance.testbeds.interpret import ProbeContext
from kproxy.lab.namespaces import Namespace
from kproxy.lab.network import Network
from kproxy.lab.probes.observation import Evidence, Socket
from kproxy.model.network import Address

_CONNECTIONS = "/proc/thread-self/net/ip_vs_conn"

_End = tuple[str, Socket, Socket]
"""Protocol, client and endpoint of a connection, as its endpoint sees them."""


def require_own_answers(evidence: Evidence, context: ProbeContext, network: Network) -> None:
    """Raise `HarnessError` if IPVS of a node beyond the judged one knows another connection with the same answers."""
    protocol = context.packet.protocol.value
    ends = {(protocol, seen.source, seen.destination) for seen in evidence.left(context.judge)}
    beyond = (node for node in context.nodes if node != context.judge and evidence.entered(node))
    for node in beyond if ends else ():
        if not ends.isdisjoint(_translated_connections(_connections(network[node]))):
            raise HarnessError(
                f"silence proves nothing: IPVS of node {node} takes the answer for one of another connection"
            )


def _connections(namespace: Namespace) -> str:
    """IPVS's connections; none where the kernel has no IPVS."""
    try:
        return namespace.read(_CONNECTIONS)
    except FileNotFoundError:
        return ""


def _translated_connections(text: str) -> Iterator[_End]:
    """IPVS's connections whose endpoint is not what the client sent to.

    ``text`` of ``/proc/net/ip_vs_conn``: a heading, then lines of protocol, address and port of client, virtual server and
    endpoint, in hexadecimal digits, state and seconds left.
    """
    for line in text.splitlines()[1:]:
        fields = line.split()
        client, virtual, endpoint = (_socket(*fields[at : at + 2]) for at in (1, 3, 5))
        if virtual != endpoint:
            yield fields[0], client, endpoint


def _socket(address: str, port: str) -> Socket:
    return Socket(_address(address), int(port, 16))


def _address(text: str) -> Address:
    """Address as IPVS writes it: ``0AF4010B``, or all digits of an IPv6 address with colons."""
    return IPv6Address(text) if ":" in text else IPv4Address(int(text, 16))
