"""HTTP/1 as far as probes and scrapers need it: parses requests, encodes responses.

Used by `kproxy.proxy.daemon.http.ports`, which moves the bytes. Pure. Each response ends its connection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
"""Empty line after a head; a line may end by a line feed alone, as some load balancers' probes have it (RFC 9112, 2.2)."""

MAX_HEAD_BYTES = 16 * 1024
"""Longest head of a request, in bytes; a longer one is refused."""

MAX_BODY_BYTES = 1024
"""Longest body of a request, in bytes; the only one in use is a number."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """Request; ``path`` is without the query and unquoted, names of ``headers`` are in lower case."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Response; it is sent with ``X-Content-Type-Options: nosniff``."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[HttpRequest], HttpResponse]


def text_response(content: str, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    """Plain text."""
    return HttpResponse(status, content.encode(), "text/plain; charset=utf-8")


NOT_FOUND = text_response("404 page not found\n", HTTPStatus.NOT_FOUND)
BAD_REQUEST = text_response("400 bad request\n", HTTPStatus.BAD_REQUEST)
TOO_LONG = text_response("431 request header fields too large\n", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
TOO_LARGE = text_response("413 request entity too large\n", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
INTERNAL_ERROR = text_response("500 internal server error\n", HTTPStatus.INTERNAL_SERVER_ERROR)


def parse_received(received: bytes) -> HttpRequest | HttpResponse | None:
    """Request in the bytes received so far, the response to an invalid one, or None while it is incomplete."""
    end = _END_OF_HEAD.search(received)
    if end is None:
        return TOO_LONG if len(received) > MAX_HEAD_BYTES else None
    request, body = parse_request(received[: end.start()]), received[end.end() :]
    length = request.headers.get("content-length", "0") if request else ""
    if request is None or not (length.isascii() and length.isdigit()):
        return BAD_REQUEST
    if len(length) > len(str(MAX_BODY_BYTES)) or int(length) > MAX_BODY_BYTES:
        return TOO_LARGE
    return replace(request, body=body[: int(length)]) if len(body) >= int(length) else None


def parse_request(head: bytes) -> HttpRequest | None:
    """Request of a head (all up to the empty line), or None when it is invalid."""
    first, *rest = (line.removesuffix("\r") for line in head.decode("latin-1").split("\n"))
    tokens = first.split(" ")
    if len(tokens) != 3 or not tokens[2].startswith("HTTP/1."):
        return None
    fields = (line.partition(":") for line in rest)
    headers = {name.strip().lower(): value.strip() for name, colon, value in fields if colon}
    try:
        target = urlsplit(tokens[1])
    except ValueError:
        return None
    return HttpRequest(tokens[0], unquote(target.path) or "/", target.query, headers)


def encode_response(answer: HttpResponse, request: HttpRequest | None, now: float) -> bytes:
    """Bytes of a response; ``now`` is seconds since the epoch. HEAD gets no body."""
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Date: {formatdate(now, usegmt=True)}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "X-Content-Type-Options: nosniff",
        *(f"{name}: {value}" for name, value in answer.headers.items()),
        "Connection: close",
    ]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head if request is not None and request.method == "HEAD" else head + answer.body
