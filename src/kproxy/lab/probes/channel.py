"""Sender's end of a probe: one socket, and exchanges of a request for a reply over it.

Theory of operation. A `Channel` classifies the end of each exchange as one `Observation`: answered, refused (ICMP),
reset, silent, or an error of the sender's own kernel. Four sources report an end, and the first decides:

1. The socket becomes readable: a reply of a server (its number and padding must match) or, on a stream, the end.
2. The captures (`kproxy.lab.captures.capture`): an ICMP error, or a RST, entered the sender's namespace.  Only they distinguish
   a RST from an ICMP error, both of which are ECONNREFUSED at a socket.
3. The socket's error queue (IP_RECVERR): ICMP errors with type, code and sender.  It also has those that the
   sender's own kernel generated without a packet on the wire, as when the REJECT happens on the client's node.
4. The errno of connect or send: EPERM when the sender's own netfilter dropped the packet; such an error gets
   `_GRACE` seconds for a more specific one, as REJECT in OUTPUT gives both.

If none does within the patience, the observation is `Silent`. The wait is divided into `_BEATS` timers, each of which
needs a round of the event loop: on a machine so busy that a round takes long the wait is stretched, so a reply that
has arrived but was not read yet is not taken for silence.

A TCP probe's initial sequence number is set to the probe's number (TCP_REPAIR), so captures identify its packets.
Late replies to earlier exchanges of a held flow are recognised by their number and skipped; errors from earlier
datagrams are read from the queue before the next one is sent.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from contextlib import suppress
from ipaddress import ip_address

from kproxy.lab.captures.capture import Captures
from kproxy.lab.namespaces import Namespace
from kproxy.lab.probes import message, packets
from kproxy.lab.probes.observation import (
    Answered,
    Garbled,
    Icmp,
    NetworkError,
    Observation,
    ProbeRequest,
    Refused,
    Reset,
    Silent,
    Socket,
    Unsupported,
)
from kproxy.lab.topology import NODES
from kproxy.linux import socket_constants
from kproxy.model.network import Address, Family, Protocol

_GRACE = 0.05
"""Seconds for an ICMP error to arrive that the sender's own kernel has already sent."""

_BEATS = 10
"""Number of timers that a wait is divided into.

Each needs a round of the event loop, as does reading a reply: where rounds take long, on a slow kernel or a busy
machine, the wait is stretched, and `Silent` still means that no reply came.
"""

_RESETS = {errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE}


class Channel:
    """Socket of one probe (or held flow); not connected at first, `exchange` connects it."""

    def __init__(self, namespace: Namespace, captures: Captures, request: ProbeRequest, number: int) -> None:
        """Raises OSError when this kernel, the source address or port does not allow such a socket."""
        self.request, self.number = request, number
        self._captures, self._namespace = captures, namespace
        self._loop = asyncio.get_running_loop()
        self._socket = _prepared(namespace, request, number)
        self._descriptor = (
            self._socket.fileno()
        )  # kept as a number: the loop would format the socket, at the price of system calls
        self._stream = request.protocol is not Protocol.UDP
        self._begun = self._connected = False
        self._own: Socket | None = None
        self._broken: Observation | None = None
        self._out = self._in = b""
        self._pending_number, self._padding = number, b""
        self._result: asyncio.Future[Observation] = self._loop.create_future()

    def close(self) -> None:
        """Close the socket, a stream by RST: nothing lingers, and its port is free again."""
        if self._socket.fileno() < 0:
            return
        self._stop()
        if self._stream:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    async def exchange(self, number: int, size: int, patience: float) -> Observation:
        """Send a request of this number and padding and wait for the reply, at most ``patience`` seconds."""
        if self._broken is not None:
            return self._broken
        if self._begun and not self._stream:
            self._forget_errors()
        self._result = self._loop.create_future()
        self._pending_number, self._padding = number, message.padding(number, size)
        self._out, self._in = self._out + message.encode_request(number, size), b""
        self._beat(patience / _BEATS, _BEATS)
        about = self.request.to if self._namespace.name in NODES else None
        self._captures.watch(number, self._namespace.name, self._end, about)
        try:
            self._start()
            return await self._result
        finally:
            self._timer.cancel()
            self._stop()

    def _beat(self, seconds: float, left: int) -> None:
        if left:
            self._timer = self._loop.call_later(seconds, self._beat, seconds, left - 1)
        else:
            self._end(Silent())

    async def closed_by_server(self, patience: float) -> None:
        """Wait until the server has closed the connection, then close this end in order."""
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(patience):
                while await self._loop.sock_recv(self._socket, 1 << 12):
                    pass
        self._stop()
        self._socket.close()

    @property
    def own(self) -> Socket:
        """Socket's own address, which stays once it is connected."""
        if self._own is not None:
            return self._own
        own = packets.socket_of(self._socket.getsockname())
        if self._connected:
            self._own = own
        return own

    def _start(self) -> None:
        if not self._begun:
            self._begun = True
            self._connect()
        elif self._connected:
            self._send()
        else:
            self._loop.add_writer(self._descriptor, self._writable)
        if not self._result.done():
            self._loop.add_reader(self._descriptor, self._readable)

    def _stop(self) -> None:
        self._captures.unwatch(self._pending_number)
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)

    def _end(self, observation: Observation) -> None:
        if not self._result.done():
            if isinstance(observation, Silent) and self._stream:
                observation = Silent(connected=self._connected)
            if self._stream and _final(observation, connected=self._connected):
                self._broken = observation
            self._result.set_result(observation)

    def _connect(self) -> None:
        problem = self._socket.connect_ex((str(self.request.destination), self.request.port))
        if self.request.protocol is Protocol.SCTP:
            self._captures.expect_sctp(self._namespace.name, self.own.port, self.number)
        if problem == errno.EINPROGRESS:
            self._loop.add_writer(self._descriptor, self._writable)
        elif problem:
            self._failed(problem)
        else:
            self._connected = True
            self._send()

    def _writable(self) -> None:
        problem = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            self._failed(problem)
        elif self._connected or self._is_connected():
            self._connected = True
            self._send()
        else:  # woken by the error queue alone
            self._failed(0)

    def _is_connected(self) -> bool:
        try:
            self._socket.getpeername()
        except OSError:
            return False
        return True

    def _send(self) -> None:
        try:
            sent = self._socket.send(self._out)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._out = b""  # what was refused is not sent again, nor with the next datagram
            self._loop.remove_writer(self._descriptor)
            self._failed(error.errno or 0)
            return
        self._out = self._out[sent:]
        if self._out:
            self._loop.add_writer(self._descriptor, self._writable)
        else:
            self._loop.remove_writer(self._descriptor)

    def _readable(self) -> None:
        if self._stream and not self._connected:
            self._writable()
            return
        try:
            data = self._socket.recv(1 << 17)
        except BlockingIOError:
            return
        except OSError as error:
            self._failed(error.errno or 0)
            return
        if not data and self._stream:
            self._end(Garbled("the connection was closed without an answer"))
            return
        self._in = self._in + data if self._stream else data
        self._judge()

    def _judge(self) -> None:
        try:
            decoded = message.decode_reply(self._in)
        except message.BadMessageError as error:
            self._end(Garbled(str(error)))
            return
        if decoded is None:
            if not self._stream:
                self._end(Garbled(f"a datagram cut to {len(self._in)} bytes"))
            return
        reply, body = decoded
        if reply.probe != self._pending_number:  # a late reply to an earlier exchange
            self._in = body[reply.size :]
        elif body != self._padding:
            self._end(Garbled(f"{len(body)} bytes came back, not the {len(self._padding)} that were sent"))
        else:
            seen = reply.reception
            self._end(Answered(who=seen.who, at=seen.at, peer=seen.peer, own=self.own))

    def _failed(self, problem: int) -> None:
        """End the exchange with an errno, unless error queue or captures have a more specific cause."""
        queued = self._error_queue()
        if queued is not None:
            self._end(queued)
        self._captures.drain()
        if self._result.done():
            return
        if problem == errno.EPERM:
            self._wait_for_own_reject(Silent(stopped_at_sender=True))
        elif problem in _RESETS and self._stream:
            self._end(Reset(connected=self._connected))
        elif problem in _RESETS:
            self._wait_for_own_reject(NetworkError(problem))
        elif problem:
            self._end(NetworkError(problem))

    def _forget_errors(self) -> None:
        """Discard errors of earlier datagrams, which would be taken for the reply to this one."""
        while self._error_queue() is not None:
            pass
        self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def _wait_for_own_reject(self, otherwise: Observation) -> None:
        self._loop.call_later(_GRACE, self._end_with, self._result, otherwise)

    def _end_with(self, result: asyncio.Future[Observation], observation: Observation) -> None:
        if result is self._result and not result.done():
            result.set_result(observation)

    def _error_queue(self) -> Refused | NetworkError | None:
        try:
            _, ancillary, _, _ = self._socket.recvmsg(2048, 512, socket.MSG_ERRQUEUE)
        except OSError:
            return None
        to = self.request.to
        return next((_queued(data, to) for level, kind, data in ancillary if _is_error(level, kind)), None)


def _final(observation: Observation, *, connected: bool) -> bool:
    """True if a stream cannot be used after this observation."""
    return isinstance(observation, Reset) or (
        not connected and isinstance(observation, Refused | NetworkError)
    )


def sequence_numbers(end: socket.socket) -> tuple[int, int]:
    """Next sequence numbers to send and to receive of an established TCP socket (needs CAP_NET_ADMIN)."""
    numbers = []
    end.setsockopt(socket.IPPROTO_TCP, socket_constants.TCP_REPAIR, socket_constants.TCP_REPAIR_ON)
    try:
        for queue in (socket_constants.TCP_SEND_QUEUE, socket_constants.TCP_RECV_QUEUE):
            end.setsockopt(socket.IPPROTO_TCP, socket_constants.TCP_REPAIR_QUEUE, queue)
            numbers.append(end.getsockopt(socket.IPPROTO_TCP, socket_constants.TCP_QUEUE_SEQ) & 0xFFFFFFFF)
    finally:
        end.setsockopt(socket.IPPROTO_TCP, socket_constants.TCP_REPAIR, socket_constants.TCP_REPAIR_OFF_NO_WP)
    return numbers[0], numbers[1]


def _prepared(namespace: Namespace, request: ProbeRequest, number: int) -> socket.socket:
    v4 = request.family is Family.IPV4
    kind = socket.SOCK_DGRAM if request.protocol is Protocol.UDP else socket.SOCK_STREAM
    family = socket.AF_INET if v4 else socket.AF_INET6
    probe = namespace.socket(family, kind, packets.NUMBERS[request.protocol])
    try:
        _set_options(probe, request, number, v4=v4)
        _bind(probe, request)
    except BaseException:
        probe.close()
        raise
    return probe


def _set_options(probe: socket.socket, request: ProbeRequest, number: int, *, v4: bool) -> None:
    level = socket.IPPROTO_IP if v4 else socket.IPPROTO_IPV6
    probe.setsockopt(level, socket_constants.IP_RECVERR if v4 else socket_constants.IPV6_RECVERR, 1)
    if request.mark:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, request.mark)
    match request.protocol:
        case Protocol.TCP:
            _number_the_syn(probe, number)
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        case Protocol.UDP:
            probe.setsockopt(
                level,
                socket_constants.IP_MTU_DISCOVER if v4 else socket_constants.IPV6_MTU_DISCOVER,
                socket_constants.PMTUDISC_DONT,
            )
        case Protocol.SCTP:
            pass


def _number_the_syn(probe: socket.socket, number: int) -> None:
    """Set the initial sequence number to the probe's number (connection repair, TCP_QUEUE_SEQ)."""
    probe.setsockopt(socket.IPPROTO_TCP, socket_constants.TCP_REPAIR, socket_constants.TCP_REPAIR_ON)
    probe.setsockopt(socket.IPPROTO_TCP, socket_constants.TCP_REPAIR_QUEUE, socket_constants.TCP_SEND_QUEUE)
    probe.setsockopt(socket.IPPROTO_TCP, socket_constants.TCP_QUEUE_SEQ, struct.pack("I", number))
    probe.setsockopt(socket.IPPROTO_TCP, socket_constants.TCP_REPAIR, socket_constants.TCP_REPAIR_OFF_NO_WP)


def _bind(probe: socket.socket, request: ProbeRequest) -> None:
    anywhere = "0.0.0.0" if request.family is Family.IPV4 else "::"  # noqa: S104 (in a namespace of the lab)
    if request.shares_port:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind((str(request.source or anywhere), request.source_port))


def _is_error(level: int, kind: int) -> bool:
    return (level, kind) in {
        (socket.IPPROTO_IP, socket_constants.IP_RECVERR),
        (socket.IPPROTO_IPV6, socket_constants.IPV6_RECVERR),
    }


def _queued(data: bytes, about: Socket) -> Refused | NetworkError:
    """Observation from ``struct sock_extended_err`` and the address of the error's sender.

    The kernel queues only errors of the socket's own packets.
    """
    number, origin, type_, code = struct.unpack_from("=IBBB", data)
    if origin == socket_constants.SO_EE_ORIGIN_ICMP:
        return Refused(Icmp(Family.IPV4, type_, code), _offender(data[20:24]), about)
    if origin == socket_constants.SO_EE_ORIGIN_ICMP6:
        return Refused(Icmp(Family.IPV6, type_, code), _offender(data[24:40]), about)
    return NetworkError(number)


def _offender(packed: bytes) -> Address:
    return ip_address(packed)


def unsupported(request: ProbeRequest, error: OSError) -> Observation:
    """Observation for a socket that could not be made."""
    if error.errno in {errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT}:
        return Unsupported(f"this kernel lacks {request.protocol.value}")
    return NetworkError(error.errno or 0)
