"""HTTP request from a namespace of the lab."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kproxy.lab.probes.observation import ProbeRequest, Silent
from kproxy.model.network import Family

if TYPE_CHECKING:
    from kproxy.lab.lab import Lab


@dataclass(frozen=True, slots=True)
class Response:
    """Response: status, body, and headers by their names in lower case."""

    status: int
    body: bytes
    headers: dict[str, str]


async def http_get(lab: Lab, request: ProbeRequest, path: str = "/") -> Response | Silent | None:
    """GET a path at a request's destination; None: the connection was refused, or it ended without a reply in HTTP."""
    family = socket.AF_INET if request.family is Family.IPV4 else socket.AF_INET6
    with lab.network[request.sender].socket(family, socket.SOCK_STREAM) as end:
        if request.source is not None:
            end.bind((str(request.source), 0))
        try:
            async with asyncio.timeout(request.patience):
                return _parsed(await _exchange(end, request, path))
        except ConnectionError:
            return None
        except TimeoutError:
            return Silent()


async def _exchange(end: socket.socket, request: ProbeRequest, path: str) -> bytes:
    loop = asyncio.get_running_loop()
    await loop.sock_connect(end, (str(request.destination), request.port))
    await loop.sock_sendall(end, f"GET {path} HTTP/1.0\r\n\r\n".encode())
    received = b""
    while part := await loop.sock_recv(end, 1 << 16):
        received += part
    return received


def _parsed(message: bytes) -> Response | None:
    head, _, body = message.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    match first.split(maxsplit=2):
        case [version, status, *_] if version.startswith("HTTP/") and status.isdecimal():
            pairs = (line.partition(":") for line in lines)
            return Response(int(status), body, {name.lower(): value.strip() for name, _, value in pairs})
        case _:
            return None
