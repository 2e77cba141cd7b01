"""Plain HTTP client of the lab's API server, and a decorator for tests written as coroutines."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from kproxy.lab.apiserver import ApiServer, ResourceKind, url_of

SERVICES = "/api/v1/services"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
IN_DEFAULT = "/api/v1/namespaces/default/services"
WATCH_LIST = {
    "watch": "1",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}

Document = dict[str, Any]


@dataclass(frozen=True)
class Stream:
    """An open watch."""

    response: aiohttp.ClientResponse

    async def event(self) -> Document:
        """The next event; fails after five seconds, or if the stream has ended."""
        line = await asyncio.wait_for(self.response.content.readline(), 5)
        assert line, "the watch ended"
        event: Document = json.loads(line)
        return event

    async def events(self, count: int) -> list[tuple[str, str]]:
        """Type and name of the next events."""
        return [brief(await self.event()) for _ in range(count)]

    async def ended(self) -> bool:
        """True if the stream ends cleanly without further events."""
        return await asyncio.wait_for(self.response.content.readline(), 5) == b""

    async def is_silent(self, seconds: float = 0.15) -> bool:
        """True if nothing arrives for a short time."""
        try:
            async with asyncio.timeout(seconds):
                await self.response.content.readline()
        except TimeoutError:
            return True
        return False


@dataclass(frozen=True)
class Client:
    session: aiohttp.ClientSession
    url: str

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        json: object = None,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Document]:
        async with self.session.request(
            method, self.url + path, params=params, json=json, data=data, headers=headers
        ) as response:
            assert response.content_type == "application/json"
            return response.status, await response.json()

    async def get(self, path: str, **query: str) -> Document:
        code, document = await self.send("GET", path, params=query)
        assert code == 200, document
        return document

    async def refused(self, path: str, **query: str) -> tuple[int, str]:
        code, document = await self.send("GET", path, params=query)
        assert document["kind"] == "Status"
        assert document["code"] == code
        return code, document["reason"]

    async def names(self, path: str, **query: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.get(path, **query))["items"]]

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Stream]:
        async with self.session.get(self.url + path, params={"watch": "1", **query}) as response:
            assert response.status == 200, await response.text()
            yield Stream(response)


def brief(event: Document) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


def service(
    name: str, *, namespace: str = "default", labels: dict[str, str] | None = None, **spec: object
) -> Document:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels or {}}, "spec": spec}


def put(
    server: ApiServer,
    name: str,
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    **spec: object,
) -> int:
    return server.store.put(ResourceKind.SERVICE, service(name, namespace=namespace, labels=labels, **spec))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition without an event, at most five seconds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  (the server sends no event for it)
            await asyncio.sleep(0.01)


def served(
    make: Callable[[], ApiServer] = ApiServer,
) -> Callable[[Callable[..., Awaitable[None]]], Callable[[], None]]:
    """Run a coroutine test against a server of its own; its parameters select fixtures: server, client."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[[], None]:
        async def scenario() -> None:
            sock = socket.create_server(("127.0.0.1", 0))
            async with make() as server, aiohttp.ClientSession() as session:
                await server.listen([sock])
                given = {"server": server, "client": Client(session, url_of(sock))}
                await test(**{name: given[name] for name in inspect.signature(test).parameters})

        def run() -> None:
            asyncio.run(scenario())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate
