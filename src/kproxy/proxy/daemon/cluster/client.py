"""HTTP client of the API server: whole responses, and streams.

Sits below `kproxy.proxy.daemon.cluster.watch`, which decides on requests. Every request has a connection of its own:
a watch lasts minutes, so keeping idle connections would save nothing and can only go stale. A dead peer is detected
by TCP keepalive (25 s) or by the read timeout that the caller sets.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from urllib.parse import urlencode, urlsplit

import msgspec

from kproxy.linux import descriptors
from kproxy.linux.descriptors import Purpose
from kproxy.proxy.daemon.cluster.credentials import Authorizer
from kproxy.proxy.daemon.cluster.kubeconfig import ClientConfig
from kproxy.proxy.daemon.cluster.request_log import NO_RESPONSE, RequestStats
from kproxy.proxy.daemon.cluster.transport import (
    CONNECT_TIMEOUT,
    Connected,
    needs_absolute_target,
    open_socket,
)
from kproxy.proxy.daemon.cluster.trust import TlsContextCache

LIST_TIMEOUT = 60.0
LONGEST_RETRY_AFTER = 60.0
"""Seconds: a longer pause that a server, or a load balancer before it, requests is cut to this."""
_CHUNK = 1 << 17
_DONE = (http.client.OK, http.client.CREATED, http.client.ACCEPTED)
_HEADERS = {"Accept": "application/json", "User-Agent": "kproxy"}


class ApiError(Exception):
    """Response with another status than success; ``code`` is the HTTP status."""

    def __init__(self, code: int, message: str, retry_after: float = 0.0) -> None:
        """``retry_after``: seconds of the Retry-After header, 0 for none."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.retry_after = retry_after


class _Status(msgspec.Struct):
    message: str = ""


class ApiClient:
    """Client of one API server; may be shared by threads. Without TLS it sends no credentials, as client-go."""

    def __init__(
        self,
        connection: ClientConfig,
        authorizer: Authorizer,
        reload: Callable[[], ClientConfig] | None = None,
    ) -> None:
        """``reload`` reads the connection again, for certificates that have been renewed.

        Raises `ssl.SSLError` (an `OSError`) when a certificate cannot be read.
        """
        self.server = connection.server
        self._url = urlsplit(connection.server)
        self.requests = RequestStats(self._url.netloc.rpartition("@")[2])
        self._server_name = connection.server_name
        self._proxy = connection.proxy
        self._authorizer = authorizer
        self._impersonation = connection.impersonation
        self._trust = TlsContextCache(connection, reload) if self._url.scheme == "https" else None

    def get(self, path: str, parameters: Mapping[str, str]) -> bytes:
        """Body of a response. Raises `ApiError`, `OSError` or `http.client.HTTPException`."""
        with self.requests.measure("GET"), closing(self._connect()) as connection:
            return self._request(connection, path, parameters, LIST_TIMEOUT)[0].read()

    def post(self, path: str, body: bytes) -> bytes:
        """Create an object from JSON; returns the response's body. Raises as `get`."""
        with self.requests.measure("POST"), closing(self._connect()) as connection:
            return self._request(connection, path, {}, LIST_TIMEOUT, body)[0].read()

    @contextmanager
    def stream(
        self, path: str, parameters: Mapping[str, str], read_timeout: float
    ) -> Iterator[ResponseStream]:
        """Response as a stream; the connection ends with the context. Raises as `get`."""
        with closing(self._connect()) as connection:
            response, sock = self._request(connection, path, parameters, read_timeout)
            with response:
                yield ResponseStream(response, sock)

    def _connect(self) -> _Connection:
        context = self._trust.context(self._authorizer.certificate()) if self._trust is not None else None
        return _Connection(
            self._url.hostname or "",
            self._url.port,
            lambda: open_socket(self._url, self._proxy, context, self._server_name),
        )

    def _request(
        self,
        connection: _Connection,
        path: str,
        parameters: Mapping[str, str],
        silence: float,
        body: bytes | None = None,
    ) -> tuple[http.client.HTTPResponse, Connected]:
        """Response, and its socket, which `HTTPConnection` drops when the server announces that it will close."""
        method = "GET" if body is None else "POST"
        headers: dict[str, str] = _HEADERS | (self._authorizer.headers() if self._trust is not None else {})
        if body is not None:
            headers |= {"Content-Type": "application/json"}
        query = f"?{urlencode(parameters)}" if parameters else ""
        target = f"{self._url.path.rstrip('/')}{path}{query}"
        if self._proxy is not None and needs_absolute_target(self._url, self._proxy):
            target = f"http://{self._url.netloc.rpartition('@')[2]}{target}"
            headers |= self._proxy.authorization
        try:
            connection.connect()
            sock = connection.sock
            sock.settimeout(silence)
            _send(connection, method, target, body, (*headers.items(), *self._impersonation))
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.requests.count_response(method, NO_RESPONSE)
            if isinstance(error, OSError):
                descriptors.count_shortage(error, Purpose.API_SERVER)
            raise
        self.requests.count_response(method, str(response.status))
        if response.status not in _DONE:
            raise self._error(response)
        return response, sock

    def _error(self, response: http.client.HTTPResponse) -> ApiError:
        if response.status == http.client.UNAUTHORIZED:
            self._authorizer.invalidate()
        body = response.read()
        try:
            message = msgspec.json.decode(body, type=_Status).message
        except (msgspec.DecodeError, UnicodeDecodeError):
            message = body[:200].decode(errors="replace")
        wait = response.headers.get("Retry-After", "")
        seconds = min(float(wait), LONGEST_RETRY_AFTER) if wait.isascii() and wait.isdecimal() else 0.0
        return ApiError(response.status, message or response.reason, seconds)


class ResponseStream:
    """Body of a response in pieces, as they arrive."""

    def __init__(self, response: http.client.HTTPResponse, connection: Connected) -> None:
        """Made by `ApiClient.stream`."""
        self._response = response
        self._connection = connection

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._response.read1(_CHUNK):
            yield chunk

    def set_read_timeout(self, seconds: float) -> None:
        """Raise `TimeoutError` after so many seconds without a byte, in all later reads."""
        self._connection.settimeout(seconds)


def _send(
    connection: _Connection, method: str, target: str, body: bytes | None, headers: Iterable[tuple[str, str]]
) -> None:
    """Send a request; a header may be given more than once."""
    connection.putrequest(method, target)
    for name, value in headers:
        connection.putheader(name, value.encode())
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)


class _Connection(http.client.HTTPConnection):
    """HTTP over what a function connects to."""

    def __init__(self, host: str, port: int | None, connect: Callable[[], Connected]) -> None:
        super().__init__(host, port, CONNECT_TIMEOUT)
        self._open = connect

    def connect(self) -> None:
        self.sock: Connected = self._open()
