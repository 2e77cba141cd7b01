"""Client of the API server for a node's kubelet: sockets in the node's network, requests repeated while it is absent."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from kproxy.lab.namespaces import Namespace
from kproxy.tls import client_context

Document = dict[str, Any]

MERGE = "application/strategic-merge-patch+json"
AGAIN = 0.2
"""Seconds between requests to an absent server."""
_LONGEST_LINE = 1 << 20
UNREACHABLE = (aiohttp.ClientError, OSError, TimeoutError)


class ApiError(Exception):
    """The server replied with an error; ``args``: its status and message."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


@asynccontextmanager
async def session(namespace: Namespace) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client whose sockets are in a namespace."""

    def make(info: tuple[Any, ...]) -> socket.socket:
        return namespace.socket(*info[:3])

    connector = aiohttp.TCPConnector(socket_factory=make, force_close=True)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=_LONGEST_LINE) as made:
        yield made


class Api:
    """A client of the server; ``token`` and ``authority`` (PEM) as in a kubeconfig."""

    def __init__(self, client: aiohttp.ClientSession, url: str, token: str, authority: bytes) -> None:
        self._client, self._url = client, url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = client_context(cadata=authority.decode())

    async def ask(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Document:
        """One request.  Raises `ApiError`, and those of `UNREACHABLE`."""
        body = None if document is None else json.dumps(document)
        headers = self._headers | {"Content-Type": content_type}
        request = self._client.request(method, self._url + path, data=body, headers=headers, ssl=self._tls)
        async with asyncio.timeout(30), request as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise ApiError(answer.status, text)
            result: Document = json.loads(text)
            return result

    async def insist(
        self, method: str, path: str, document: Mapping[str, Any] | None = None, content_type: str = MERGE
    ) -> Document | None:
        """The same until the server has taken it; None when there is no such object any more, or is one already."""
        while True:
            try:
                return await self.ask(method, path, document, content_type)
            except ApiError as error:
                if error.code == 409 or (error.code == 404 and method != "POST"):
                    return None
                if error.code < 500 and error.code not in {404, 429}:
                    raise
            except UNREACHABLE:
                pass
            await asyncio.sleep(AGAIN)

    async def follow(self, path: str, selector: str) -> AsyncIterator[dict[str, Document]]:
        """The present objects by UID, at first and after each change; without end."""
        while True:
            try:
                listed = await self.ask("GET", f"{path}?fieldSelector={selector}")
                held = {item["metadata"]["uid"]: item for item in listed["items"]}
                yield held
                since = listed["metadata"]["resourceVersion"]
                async for kind, item in self._watch(path, selector, since):
                    if kind == "DELETED":
                        held.pop(item["metadata"]["uid"], None)
                    else:
                        held[item["metadata"]["uid"]] = item
                    yield held
            except (ApiError, *UNREACHABLE):
                pass
            await asyncio.sleep(AGAIN)

    async def _watch(self, path: str, selector: str, since: str) -> AsyncIterator[tuple[str, Document]]:
        """Events until the server ends the watch, or does not have ``since`` any more."""
        url = f"{self._url}{path}?fieldSelector={selector}&watch=true&resourceVersion={since}"
        forever = aiohttp.ClientTimeout(total=None, sock_read=None)
        async with self._client.get(url, headers=self._headers, ssl=self._tls, timeout=forever) as answer:
            if answer.status >= 400:
                raise ApiError(answer.status, await answer.text())
            while line := await answer.content.readuntil():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]
