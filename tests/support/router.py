"""A node between a client and a server, without Kubernetes: outcome of a first packet under any rules.

Every address of ``SERVED`` is the server's, so that it receives all packets that a rule sends there; raw sockets record
address and port of a packet when it is delivered, also without a listener.
"""

from __future__ import annotations

import errno
import itertools
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address

from kproxy.lab.namespaces import Namespace, create_namespace

CLIENT, NODE, NODE_BEHIND, SERVER = "10.9.1.2", "10.9.1.1", "10.9.2.1", "10.9.2.2"
SERVED = "10.20.0.0/16"
BLACKHOLE, UNREACHABLE, ELSEWHERE = "10.66.0.1", "10.67.0.1", "10.99.0.1"
SILENCE = 0.05
"""Seconds without a packet after which it counts as dropped: it passes all three namespaces within the send call."""

_KINDS = {"udp": (socket.SOCK_DGRAM, socket.IPPROTO_UDP), "tcp": (socket.SOCK_STREAM, socket.IPPROTO_TCP)}
_REFUSED = {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.ECONNRESET}
_DROPPED = {errno.EPERM, errno.EINVAL}
"""Errnos of a sender on the node itself when a rule, or a blackhole route, drops its packet."""


@dataclass(frozen=True, slots=True)
class Met:
    """Outcome of a packet: ``rejected``, ``dropped``, or its receiver, ``server`` or ``node``, with addresses and port."""

    kind: str
    destination: str = ""
    port: int = 0
    source: str = ""


class Router:
    """The three namespaces, and packets through them."""

    def __init__(self, client: Namespace, node: Namespace, server: Namespace) -> None:
        self._of = {"client": client, "node": node, "server": server}
        self.node = node
        self._ports = itertools.count(41000)
        self._raw = {
            (name, protocol): self._of[name].socket(socket.AF_INET, socket.SOCK_RAW, number)
            for name in ("node", "server")
            for protocol, (_, number) in _KINDS.items()
        }

    def close(self) -> None:
        for raw in self._raw.values():
            raw.close()
        for namespace in self._of.values():
            namespace.close()

    def send(self, sender: str, destination: str, port: int, protocol: str) -> Met:
        """One first packet, from ``client`` or ``node``."""
        kind, _ = _KINDS[protocol]
        own = next(self._ports)
        self._delivered(protocol)  # what came late of the packet before
        with self._of[sender].socket(socket.AF_INET, kind) as probe:
            probe.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR: all errors are reported
            probe.bind(("", own))
            error = probe.connect_ex((destination, port))
            if protocol == "udp" and not error:
                error = _sent(probe)
            found = self._delivered(protocol)
            if found is not None or error not in {0, errno.EINPROGRESS}:
                return found or _refused(error)
            return self._waited(probe, protocol)

    def _waited(self, probe: socket.socket, protocol: str) -> Met:
        until = time.monotonic() + SILENCE
        while (left := until - time.monotonic()) > 0:
            waiting = [probe, self._raw["node", protocol], self._raw["server", protocol]]
            ready, _, _ = select.select(waiting, [], [], left)
            if (found := self._delivered(protocol)) is not None:
                return found
            if probe in ready:
                return _refused(probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        return Met("dropped")

    def _delivered(self, protocol: str) -> Met | None:
        """Packets at a raw socket from a probe's source port to its port."""
        found: Met | None = None
        for name in ("node", "server"):
            raw = self._raw[name, protocol]
            with suppress(BlockingIOError):
                while True:
                    seen = _parsed(name, raw.recv(4096), protocol)
                    found = found or seen
        return found


def _refused(error: int) -> Met:
    if error in _REFUSED:
        return Met("rejected")
    return Met("dropped" if error in _DROPPED else f"error {error}")


def _sent(probe: socket.socket) -> int:
    try:
        probe.send(b"x")
    except OSError as error:
        return error.errno or 0
    return 0


def _parsed(name: str, packet: bytes, protocol: str) -> Met | None:
    """Parser of a request: of TCP the first segment alone; replies are skipped, and UDP has none."""
    source, destination = (str(IPv4Address(packet[at : at + 4])) for at in (12, 16))
    start = (packet[0] & 15) * 4
    _, port = struct.unpack_from("!HH", packet, start)
    if protocol == "tcp" and packet[start + 13] & 0x17 != 0x02:
        return None
    return Met(name, destination, port, source)


@contextmanager
def router() -> Iterator[Router]:
    """The wired namespaces, removed afterwards."""
    with ExitStack() as stack:
        client, node, server = (create_namespace(name) for name in ("client", "node", "server"))
        for namespace in (client, node, server):
            stack.callback(namespace.close)
            namespace.run(["ip", "link", "set", "lo", "up"])
        _wire(client, node, ("eth0", f"{CLIENT}/24"), ("to-client", f"{NODE}/24"))
        _wire(server, node, ("eth0", f"{SERVER}/24"), ("to-server", f"{NODE_BEHIND}/24"))
        client.run(["ip", "route", "add", "default", "via", NODE])
        server.run(["ip", "route", "add", "default", "via", NODE_BEHIND])
        server.run(["ip", "route", "add", "local", SERVED, "dev", "lo"])
        node.run(["ip", "route", "add", SERVED, "via", SERVER])
        node.run(["ip", "route", "add", "blackhole", f"{BLACKHOLE}/32"])
        node.run(["ip", "route", "add", "unreachable", f"{UNREACHABLE}/32"])
        calm = {
            "ipv4/icmp_ratelimit": "0",
            "ipv4/conf/all/rp_filter": "0",
            "ipv4/conf/default/rp_filter": "0",
        }
        for namespace in (client, node, server):
            namespace.set({**calm, "ipv4/ip_forward": "1"})
            namespace.activate_links()
        made = Router(client, node, server)
        stack.callback(made.close)
        yield made


def _wire(end: Namespace, node: Namespace, at_end: tuple[str, str], at_node: tuple[str, str]) -> None:
    end.run(["ip", "link", "add", at_end[0], "type", "veth", "peer", "name", at_node[0], "netns", node.path])
    for namespace, (interface, address) in ((end, at_end), (node, at_node)):
        namespace.run(["ip", "address", "add", address, "dev", interface])
        namespace.run(["ip", "link", "set", interface, "up"])
