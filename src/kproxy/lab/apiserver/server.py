"""HTTP server of the store: Kubernetes API on given sockets, inside the harness's event loop.

The sockets are made by the owner of the namespaces and listen already; this module opens none. Responses are JSON
whatever else a client would accept; there is no authentication.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import hdrs, web

from kproxy.lab.apiserver.faults import Faults
from kproxy.lab.apiserver.kubeconfig import kubeconfig
from kproxy.lab.apiserver.lists import list_body
from kproxy.lab.apiserver.options import is_watch, parse_options
from kproxy.lab.apiserver.resources import ALL_KINDS, ResourceKind
from kproxy.lab.apiserver.routes import FixedDocument, ResourcePath, Verb, parse_path
from kproxy.lab.apiserver.status import StatusError, injected_error, not_acceptable
from kproxy.lab.apiserver.store import ObjectStore
from kproxy.lab.apiserver.versions import whole_object
from kproxy.lab.apiserver.watch import Watch
from kproxy.lab.apiserver.writes import JSON, RequestBody, get_object, handle_write

_READABLE = {JSON, "application/*", "*/*", ""}
_LARGEST_BODY = 4 << 20
_REQUESTS_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """Request for a resource, as it arrived; ``at`` is monotonic time."""

    at: float
    verb: Verb
    kind: ResourceKind
    api_version: str
    namespace: str | None
    name: str | None
    query: Mapping[str, str]
    headers: Mapping[str, str]
    client: str


class ApiServer:
    """Serves a store on any number of sockets."""

    def __init__(
        self, store: ObjectStore | None = None, *, watch_list: bool = True, bookmark_seconds: float = 60
    ) -> None:
        """``watch_list``: support sendInitialEvents; False refuses it with 422, as servers before 1.32 do."""
        self.store = store or ObjectStore()
        self.faults = Faults()
        self.requests: deque[RecordedRequest] = deque(maxlen=_REQUESTS_REMEMBERED)
        self._watch_list = watch_list
        self._bookmark_seconds = bookmark_seconds
        self._watches: dict[Watch, web.Request] = {}
        self._runner = self._make_runner()
        self._sites: list[web.SockSite] = []

    def _make_runner(self) -> web.AppRunner:
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    # --------------------------------------------------------------------------- life

    async def listen(
        self, sockets: Iterable[socket.socket], *, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        """Serve on listening sockets, of any namespace, and own them afterwards. May be called again."""
        if self._runner.server is None:
            await self._runner.setup()
        for sock in sockets:
            site = web.SockSite(self._runner, sock, ssl_context=ssl_context)
            await site.start()
            self._sites.append(site)

    def kubeconfig(self, address: str) -> str:
        """Kubeconfig for clients in the namespace of its sockets; ``address`` is host and port."""
        return kubeconfig(self.url(address))

    def url(self, address: str) -> str:
        """URL for clients in the namespace of its sockets; ``address`` is host and port."""
        return f"http://{address}"

    async def close_listeners(self, *, connections: bool = True) -> None:
        """Close the listening sockets, so that connecting is refused; ``connections``: reset open ones too."""
        sites, self._sites = self._sites, []
        for site in sites:
            await site.stop()
        server = self._runner.server
        if connections and server is not None:
            for connection in server.connections:
                if connection.transport is not None:
                    connection.transport.abort()

    async def close(self) -> None:
        """Close all watches, sockets and connections; the store is kept."""
        self.drop_watches()
        await self.close_listeners(connections=False)
        await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --------------------------------------------------------------------------- faults

    def drop_watches(self, kinds: frozenset[ResourceKind] = ALL_KINDS, *, reset: bool = False) -> int:
        """End the open watches of these kinds, cleanly or by a reset connection; returns their number."""
        dropped = [(w, request) for w, request in self._watches.items() if w.resource.kind in kinds]
        for watch, request in dropped:
            if reset and request.transport is not None:
                request.transport.abort()
            else:
                watch.end()
        return len(dropped)

    @property
    def current_watches(self) -> tuple[ResourceKind, ...]:
        """Kinds of the watches whose clients have been sent all there is, one entry for each watch."""
        return tuple(watch.resource.kind for watch in self._watches if watch.is_current)

    # --------------------------------------------------------------------------- answers

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except StatusError as error:
            return _json(msgspec.json.encode(error.status()), error.code, _retry_after(error))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if not _accepts_json(request.headers.get(hdrs.ACCEPT, "")):
            raise not_acceptable()
        found = parse_path(request.path)
        if isinstance(found, FixedDocument):
            return _fixed(found)
        verb = found.verb(request.method, watch=is_watch(request.query))
        self.requests.append(_seen(request, found, verb))
        fault = self.faults.refusal(verb, found.resource.kind)
        if fault is not None:
            raise injected_error(fault.code, fault.retry_after)
        if verb is Verb.WATCH:
            return await self._watch(request, found)
        await self.faults.released(verb, found.resource.kind)
        return await self._answer_once(request, found, verb)

    async def _answer_once(self, request: web.Request, place: ResourcePath, verb: Verb) -> web.Response:
        if verb is Verb.GET:
            return _json(whole_object(get_object(self.store, place), place.resource))
        if verb is Verb.LIST:
            options = parse_options(request.query, place, watch=False, watch_list=self._watch_list)
            return _json(list_body(self.store, place.resource, options))
        named = request.content_type if hdrs.CONTENT_TYPE in request.headers else ""
        code, answer = handle_write(self.store, place, verb, RequestBody(named, await request.read()))
        return _json(answer, code)

    async def _watch(self, request: web.Request, place: ResourcePath) -> web.StreamResponse:
        options = parse_options(request.query, place, watch=True, watch_list=self._watch_list)
        watch = Watch(self.store, self.faults, place.resource, options, self._bookmark_seconds)
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: JSON})
        self._watches[watch] = request
        try:
            await response.prepare(request)
            await watch.run(response.write)
            await response.write_eof()
        except ConnectionResetError:
            pass
        finally:
            self._watches.pop(watch)
        return response


def url_of(sock: socket.socket, *, tls: bool = False) -> str:
    """URL of a listening socket for clients in its namespace; it must be bound to an address, not to all."""
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if sock.family is socket.AF_INET6 else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"


def _fixed(found: FixedDocument) -> web.Response:
    if isinstance(found.answer, str):
        return web.Response(text=found.answer)
    return _json(msgspec.json.encode(found.answer))


def _json(body: bytes, code: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=code, headers=headers, content_type=JSON)


def _retry_after(error: StatusError) -> dict[str, str]:
    seconds = error.details.get("retryAfterSeconds")
    return {} if seconds is None else {hdrs.RETRY_AFTER: str(seconds)}


def _accepts_json(accept: str) -> bool:
    offers = (offer.split(";") for offer in accept.split(","))
    return any(
        media.strip() in _READABLE and not any(p.strip().startswith("as=") for p in parameters)
        for media, *parameters in offers
    )


def _seen(request: web.Request, place: ResourcePath, verb: Verb) -> RecordedRequest:
    return RecordedRequest(
        at=time.monotonic(),
        verb=verb,
        kind=place.resource.kind,
        api_version=place.resource.api_version,
        namespace=place.namespace,
        name=place.name,
        query=dict(request.query),
        headers=dict(request.headers),
        client=request.remote or "",
    )
