"""Connections to the API server: directly, or through a proxy by CONNECT or SOCKS 5.

Sits below `kproxy.proxy.daemon.cluster.client`, which speaks HTTP over what `open_socket` gives. An http server behind an
http proxy needs no tunnel (`needs_absolute_target`); an https one is reached by CONNECT, and TLS to it ends there and not
in the proxy.

RFC 9110, 9.3.6 (CONNECT); RFC 1928 and RFC 1929 (SOCKS 5 and its user and password).
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar
from urllib.parse import SplitResult

from kproxy.linux.sockets import receive_exactly
from kproxy.proxy.daemon.cluster.forward_proxy import ForwardProxy
from kproxy.tls import client_context

CONNECT_TIMEOUT = 10.0
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_PORTS = {"http": http.client.HTTP_PORT, "https": http.client.HTTPS_PORT}
_SOCKS_ERRORS = {
    2: "its rules do not allow it",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
}

Connected: TypeAlias = "socket.socket | NestedTls"
"""An open connection to a server."""

Result = TypeVar("Result")


def needs_absolute_target(server: SplitResult, proxy: ForwardProxy | None) -> bool:
    """True if requests go to the proxy itself, with the server's whole URL as the target."""
    return proxy is not None and proxy.scheme != "socks5" and server.scheme == "http"


def open_socket(
    server: SplitResult, proxy: ForwardProxy | None, tls: ssl.SSLContext | None, server_name: str
) -> Connected:
    """Connect to a server, with ``tls`` as ``server_name``; raises `OSError`, which names the proxy where that failed."""
    host, port = server.hostname or "", server.port or _PORTS[server.scheme]
    if proxy is None:
        sock = _connect(host, port)
    else:
        try:
            sock = _connect_by(proxy, host, port, tunnelled=not needs_absolute_target(server, proxy))
        except OSError as error:
            raise OSError(f"proxy {proxy}: {error.strerror or error}") from error
    if tls is None:
        return sock
    name = server_name or host
    if isinstance(sock, ssl.SSLSocket):
        return NestedTls(sock, tls, name)
    return tls.wrap_socket(sock, server_hostname=name)


def _connect(host: str, port: int) -> socket.socket:
    """Connect; the socket detects a dead peer by TCP keepalive."""
    sock = socket.create_connection((host, port), CONNECT_TIMEOUT)
    for level, option, value in _KEEPALIVE:
        sock.setsockopt(level, option, value)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _connect_by(proxy: ForwardProxy, host: str, port: int, *, tunnelled: bool) -> socket.socket:
    sock = _connect(proxy.host, proxy.port)
    try:
        if proxy.scheme == "socks5":
            _socks(sock, proxy, host, port)
            return sock
        if proxy.scheme == "https":
            sock = client_context().wrap_socket(sock, server_hostname=proxy.host)
        if tunnelled:
            _tunnel(sock, proxy, host, port)
    except BaseException:
        sock.close()
        raise
    return sock


def _tunnel(sock: socket.socket, proxy: ForwardProxy, host: str, port: int) -> None:
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    headers = {"Host": authority, "User-Agent": "kproxy", **proxy.authorization}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    sock.sendall(f"CONNECT {authority} HTTP/1.1\r\n{lines}\r\n".encode())
    response = http.client.HTTPResponse(sock, method="CONNECT")
    try:
        response.begin()
        if response.status != http.client.OK:
            raise OSError(f"CONNECT {authority}: {response.status} {response.reason}")
    except http.client.HTTPException as error:
        raise OSError(f"CONNECT {authority}: no HTTP answer ({type(error).__name__})") from error
    finally:
        response.close()


def _socks(sock: socket.socket, proxy: ForwardProxy, host: str, port: int) -> None:
    """Make a SOCKS 5 proxy connect; it is given the name, and resolves it itself."""
    method = 2 if proxy.user else 0
    sock.sendall(bytes((5, 1, method)))
    if receive_exactly(sock, 2) != bytes((5, method)):
        raise OSError("it accepts no " + ("user and password" if proxy.user else "client without a user"))
    if proxy.user:
        user, password = proxy.user.encode(), proxy.password.encode()
        sock.sendall(bytes((1, len(user))) + user + bytes((len(password),)) + password)
        if receive_exactly(sock, 2)[1]:
            raise OSError("it refuses the user and password")
    name = host.encode("idna") if ":" not in host else host.encode()
    sock.sendall(bytes((5, 1, 0)) + _socks_address(host, name) + port.to_bytes(2, "big"))
    _, code, _, kind = receive_exactly(sock, 4)
    if code:
        raise OSError(f"{host}:{port}: {_SOCKS_ERRORS.get(code, f'SOCKS error {code}')}")
    bound = {1: 4, 4: 16}.get(kind) or receive_exactly(sock, 1)[0]
    receive_exactly(sock, bound + 2)


def _socks_address(host: str, name: bytes) -> bytes:
    for family, kind in ((socket.AF_INET, 1), (socket.AF_INET6, 4)):
        try:
            return bytes((kind,)) + socket.inet_pton(family, host)
        except OSError:
            continue
    return bytes((3, len(name))) + name


class NestedTls:
    """TLS to a server inside of TLS to a proxy, which `ssl` has no socket for; the methods of one that `http.client` uses."""

    def __init__(self, outer: ssl.SSLSocket, context: ssl.SSLContext, name: str) -> None:
        """Make the handshake; raises `OSError`."""
        self._outer, self._readers, self._closing = outer, 0, False
        self._received, self._pending = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._pending, server_hostname=name)
        try:
            self._pump(self._tls.do_handshake)
        except BaseException:
            outer.close()
            raise

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        sent = 0
        while sent < len(data):
            sent += self._pump(partial(self._tls.write, memoryview(data)[sent:]))

    def recv_into(self, buffer: memoryview) -> int:
        """Fill a part of a buffer; 0 at the end of the stream."""
        try:
            data = self._pump(partial(self._tls.read, len(buffer)))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0
        buffer[: len(data)] = data
        return len(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Reader of what the server sends; the connection ends when this and the reader are closed, as a socket's does."""
        self._readers += 1
        return io.BufferedReader(_Reader(self))

    def settimeout(self, seconds: float) -> None:
        """Raise `TimeoutError` after so many seconds without a byte."""
        self._outer.settimeout(seconds)

    def close(self) -> None:
        """Close the connection, once its readers are closed."""
        self._closing = True
        if not self._readers:
            self._outer.close()

    def reader_closed(self) -> None:
        """Called by a reader."""
        self._readers -= 1
        if self._closing:
            self.close()

    def _pump(self, step: Callable[[], Result]) -> Result:
        """Do a step of TLS, moving bytes between it and the outer connection as it needs them."""
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self._flush()
                if data := self._outer.recv(1 << 16):
                    self._received.write(data)
                else:
                    self._received.write_eof()
            else:
                self._flush()
                return result

    def _flush(self) -> None:
        if self._pending.pending:
            self._outer.sendall(self._pending.read())


class _Reader(io.RawIOBase):
    """Reader of what a server sends inside of two connections of TLS."""

    def __init__(self, tls: NestedTls) -> None:
        self._tls = tls

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # `BufferedReader` gives no other buffer
        return self._tls.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._tls.reader_closed()
