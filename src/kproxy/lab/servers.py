"""Servers of the lab: endpoints and bystanders that reply with their name and the source they saw.

All listen from this one process, each socket in the namespace it was made in. Every request that arrives is recorded
by its probe's number, whether or not the reply finds its way back.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address

from kproxy.lab.namespaces import Namespace
from kproxy.lab.probes import message, packets
from kproxy.lab.probes.observation import Reception, Socket
from kproxy.linux import socket_constants
from kproxy.model.network import Address, Protocol

_BACKLOG = 1024
_BATCH = 64
_FILLING = 3
"""Connections after which a backlog of 0 is full: one is accepted, and one more may wait."""
_ANYWHERE = (ip_address("0.0.0.0"), ip_address("::"))  # noqa: S104 (in a namespace of the lab)

ListeningSocket = socket.socket


class Servers:
    """All servers of a lab, and the record of requests that reached them; create it in a running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[tuple[str, int, Protocol], list[ListeningSocket]] = {}
        self._connections: set[ServerConnection] = set()
        self._hanging: list[socket.socket] = []
        self._by_number: dict[int, ServerConnection] = {}
        self._receptions: dict[int, list[Reception]] = {}
        self.greet: Callable[[Reception], str] | None = None
        """Text of the reply to other programs (curl, nc); None: only the lab's own messages get replies."""

    def serve(
        self,
        namespace: Namespace,
        port: int,
        protocol: Protocol,
        who: str,
        addresses: tuple[Address, ...] = _ANYWHERE,
    ) -> None:
        """Reply on a port as ``who``, on these addresses (default: every one, both families).

        OSError when the port is taken, or the kernel lacks the protocol.
        """
        listeners = self._listeners.setdefault((namespace.name, port, protocol), [])
        for address in addresses:
            listener = _listening(namespace, address, port, protocol)
            if protocol is Protocol.UDP:
                self._loop.add_reader(listener.fileno(), self._datagrams, listener, port, who)
            else:
                self._loop.add_reader(listener.fileno(), self._accept, listener, who, namespace.name)
            listeners.append(listener)

    def stop(self, namespace: Namespace, port: int, protocol: Protocol) -> None:
        """Close a listening socket; open connections stay."""
        for listener in self._listeners.pop((namespace.name, port, protocol), []):
            self._loop.remove_reader(listener.fileno())
            listener.close()

    def hang(self, namespace: Namespace, at: Socket) -> None:
        """Let the kernel leave TCP connections to an address unanswered: a socket with a full backlog listens there."""
        listener = _listening(namespace, at.address, at.port, Protocol.TCP)
        listener.listen(0)
        unanswered = [listener]
        for _ in range(_FILLING):
            client = namespace.socket(listener.family, socket.SOCK_STREAM)
            client.connect_ex((str(at.address), at.port))
            unanswered.append(client)
        self._hanging += unanswered

    def close(self) -> None:
        """Stop all servers and drop their connections."""
        for listeners in self._listeners.values():
            for listener in listeners:
                self._loop.remove_reader(listener.fileno())
                listener.close()
        self._listeners.clear()
        for end in self._hanging:
            end.close()
        for connection in list(self._connections):
            connection.close()

    def receptions(self, number: int) -> tuple[Reception, ...]:
        """Records of this probe's request, in order of arrival."""
        return tuple(self._receptions.get(number, ()))

    def forget(self, number: int) -> None:
        """Drop the record of a probe that has been judged."""
        self._receptions.pop(number, None)

    def connection(self, number: int) -> ServerConnection | None:
        """Open connection that carried this probe's request."""
        return self._by_number.get(number)

    def _record(self, number: int, reception: Reception) -> None:
        self._receptions.setdefault(number, []).append(reception)

    def _accept(self, listener: ListeningSocket, who: str, namespace: str) -> None:
        for _ in range(_BATCH):
            try:
                end, peer = listener.accept()
            except BlockingIOError:
                return
            except OSError:  # reset before it was accepted
                continue
            reception = Reception(who, packets.socket_of(end.getsockname()), packets.socket_of(peer))
            self._connections.add(
                ServerConnection(end, namespace, reception, self._connected, self._closed, self.greet)
            )

    def _connected(self, connection: ServerConnection, number: int) -> None:
        self._by_number[number] = connection
        connection.numbers.add(number)
        self._record(number, connection.reception)

    def _closed(self, connection: ServerConnection) -> None:
        self._connections.discard(connection)
        for number in connection.numbers:
            if self._by_number.get(number) is connection:
                del self._by_number[number]

    def _datagrams(self, listener: ListeningSocket, port: int, who: str) -> None:
        for _ in range(_BATCH):
            try:
                data, ancillary, _, peer = listener.recvmsg(1 << 16, 64)
            except BlockingIOError:
                return
            except OSError:  # an ICMP error about an earlier reply
                continue
            info = _packet_info(ancillary)
            reception = Reception(who, Socket(_own_address(info), port), packets.socket_of(peer))
            if reply := self._reply_to_datagram(reception, data):
                with suppress(OSError):  # no way back: the sender sees silence, the record has the reason
                    listener.sendmsg([reply], [_answer_from(info)], 0, peer)

    def _reply_to_datagram(self, reception: Reception, data: bytes) -> bytes:
        request = _decode(data)
        if request is None:
            return self.greet(reception).encode() if self.greet else b""
        number, size = request
        self._record(number, reception)
        return message.encode_reply(_reply(number, reception, size), data[message.REQUEST_HEADER :])


class ServerConnection:
    """A server's end of a stream connection."""

    def __init__(
        self,
        end: socket.socket,
        namespace: str,
        reception: Reception,
        received: Callable[[ServerConnection, int], None],
        closed: Callable[[ServerConnection], None],
        greet: Callable[[Reception], str] | None = None,
    ) -> None:
        end.setblocking(False)
        self.end, self.namespace, self.reception = end, namespace, reception
        self.numbers: set[int] = set()
        self._loop, self._received, self._on_close = asyncio.get_running_loop(), received, closed
        self._greet, self._in = greet, b""
        self._out: deque[bytes] = deque()
        self._loop.add_reader(end.fileno(), self._read)

    def close(self) -> None:
        """Close it; closing twice does nothing."""
        if self.end.fileno() < 0:
            return
        self._loop.remove_reader(self.end.fileno())
        self._loop.remove_writer(self.end.fileno())
        self.end.close()
        self._on_close(self)

    def _read(self) -> None:
        try:
            data = self.end.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._in += data
        if not data or not self._answer_all():
            self.close()

    def _answer_all(self) -> bool:
        """Reply to all complete requests; False when the data is none."""
        while self._in:
            try:
                header = message.decode_request(self._in)
            except message.BadMessageError:
                if self._greet is not None:
                    self._out.append(_greeting(self._in, self._greet(self.reception)))
                    self._write()
                return False
            if header is None or len(self._in) < message.REQUEST_HEADER + header[1]:
                return True
            self._answer(*header)
        return True

    def _answer(self, number: int, size: int) -> None:
        end = message.REQUEST_HEADER + size
        body, self._in = self._in[message.REQUEST_HEADER : end], self._in[end:]
        self._received(self, number)
        self._out.append(message.encode_reply(_reply(number, self.reception, size), body))
        self._write()

    def _write(self) -> None:
        while self._out:
            data = self._out.popleft()
            try:
                sent = self.end.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._out.clear()
                break
            if sent < len(data):
                self._out.appendleft(data[sent:])
                self._loop.add_writer(self.end.fileno(), self._write)
                return
        self._loop.remove_writer(self.end.fileno())


def _greeting(request: bytes, text: str) -> bytes:
    """Line of text, as an HTTP response if the request is HTTP."""
    body = text.encode()
    if b" HTTP/1." not in request.partition(b"\r\n")[0]:
        return body
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def _listening(namespace: Namespace, address: Address, port: int, protocol: Protocol) -> ListeningSocket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    kind = socket.SOCK_DGRAM if protocol is Protocol.UDP else socket.SOCK_STREAM
    listener = namespace.socket(family, kind, packets.NUMBERS[protocol])
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if protocol is Protocol.UDP:
        _want_packet_info(listener, family)
    else:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if address.is_unspecified:  # a proxy that serves one of the addresses by a socket may bind there
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((str(address), port))
    if protocol is not Protocol.UDP:
        listener.listen(_BACKLOG)
    return listener


def _want_packet_info(listener: ListeningSocket, family: int) -> None:
    """Enable IP_PKTINFO, so that a UDP reply leaves from the address its request was sent to."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
    if family == socket.AF_INET:
        listener.setsockopt(socket.IPPROTO_IP, socket_constants.IP_PKTINFO, 1)
        listener.setsockopt(
            socket.IPPROTO_IP, socket_constants.IP_MTU_DISCOVER, socket_constants.PMTUDISC_DONT
        )
    else:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        listener.setsockopt(
            socket.IPPROTO_IPV6, socket_constants.IPV6_FREEBIND, 1
        )  # an address of its range is on no interface
        listener.setsockopt(
            socket.IPPROTO_IPV6, socket_constants.IPV6_MTU_DISCOVER, socket_constants.PMTUDISC_DONT
        )


def _packet_info(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, int, bytes]:
    wanted = {(socket.IPPROTO_IP, socket_constants.IP_PKTINFO), (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO)}
    return next(item for item in ancillary if item[:2] in wanted)


def _own_address(info: tuple[int, int, bytes]) -> Address:
    return ip_address(info[2][8:12] if info[0] == socket.IPPROTO_IP else info[2][:16])


def _answer_from(info: tuple[int, int, bytes]) -> tuple[int, int, bytes]:
    """Ancillary data that fixes the reply's source and leaves the interface to the routes."""
    level, kind, data = info
    if level == socket.IPPROTO_IP:
        return level, kind, struct.pack("=i4s4s", 0, data[8:12], b"\0" * 4)
    return level, kind, data[:16] + struct.pack("=i", 0)


def _decode(data: bytes) -> tuple[int, int] | None:
    try:
        return message.decode_request(data)
    except message.BadMessageError:
        return None


def _reply(number: int, reception: Reception, size: int) -> message.Reply:
    at, peer = reception.at, reception.peer
    return message.Reply(number, reception.who, str(at.address), at.port, str(peer.address), peer.port, size)
