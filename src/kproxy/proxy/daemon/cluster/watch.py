"""Keeps a `ClusterStore` equal to the API server: list and watch, one thread a resource.

A new watch asks for everything there is as its first events (WatchList, KEP-3157); a server that does not
offer that is listed.  When the connection is lost, what is known stays (``life.apiserver-down``) and the watch
goes on from the last version it saw; when the server has forgotten that version (410) all is listed again.
"""

from __future__ import annotations

import http.client
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import msgspec

from kproxy.linux.host import HostError
from kproxy.model.api import EndpointSlice, Key, Node, Rejected, Service, ServiceCIDR, key_of
from kproxy.proxy.daemon.cluster.client import ApiError
from kproxy.proxy.daemon.cluster.kubeconfig import KubeconfigError
from kproxy.proxy.daemon.cluster.store import Change, ClusterStore, Kind, Removed, Watched
from kproxy.proxy.daemon.cluster.watch_decoder import (
    Bookmark,
    WatchDecoder,
    WatchedChange,
    WatchError,
    WatchEvent,
)

INITIAL_TIMEOUT_SECONDS = 15.0
"""Seconds until an answer begins, and that a WatchList may pause before its end.

A server too old to know of WatchList would stay silent for ever.
"""

IDLE_TIMEOUT_SECONDS = 75.0
"""Seconds after which a watch that says nothing is asked for anew, from where it was.

A server tells how far it is every minute (bookmarks), so this is a connection that is dead though nobody says so, or a server
without bookmarks, which it costs one request.
"""

MIN_WATCH_SECONDS = 1.0
"""Seconds below which a watch that ended without a change did not work, however politely it ended (as client-go)."""

WATCH_SECONDS = (300.0, 600.0)
"""Bounds of a watch's length; random, so that not all nodes come back at once (as client-go)."""

GONE = 410
"""HTTP's word for a version that is forgotten."""

_NO_WATCH_LIST = frozenset({400, 422})
_NOT_ALLOWED = frozenset({http.client.UNAUTHORIZED, http.client.FORBIDDEN})

log = logging.getLogger(__name__)


class WatchStream(Protocol):
    """An answer that keeps coming (`kproxy.proxy.daemon.cluster.client.ResponseStream`)."""

    def __iter__(self) -> Iterator[bytes]:
        """Its pieces."""

    def set_read_timeout(self, seconds: float) -> None:
        """How long it may pause from now on."""


class ListerWatcher(Protocol):
    """What a watch needs of `kproxy.proxy.daemon.cluster.client.ApiClient`."""

    def get(self, path: str, parameters: Mapping[str, str]) -> bytes:
        """The body of an answer."""

    def stream(
        self, path: str, parameters: Mapping[str, str], read_timeout: float
    ) -> AbstractContextManager[WatchStream]:
        """An answer that keeps coming."""


@dataclass(frozen=True, slots=True)
class WatchedResource:
    """What is asked for: a kind, where it is served, and which of its objects."""

    kind: Kind
    path: str
    selectors: Mapping[str, str]


SERVICES = WatchedResource(
    Service,
    "/api/v1/services",
    {"fieldSelector": "spec.clusterIP!=None", "labelSelector": "!service.kubernetes.io/service-proxy-name"},
)
"""``obj.headless``, ``obj.service-proxy-name``."""

ENDPOINT_SLICES = WatchedResource(
    EndpointSlice,
    "/apis/discovery.k8s.io/v1/endpointslices",
    {"labelSelector": "!service.kubernetes.io/headless"},
)
"""``obj.headless-label``."""


SERVICE_CIDRS = WatchedResource(ServiceCIDR, "/apis/networking.k8s.io/v1/servicecidrs", {})
"""``undef.unallocated``."""


def node_resource(name: str) -> WatchedResource:
    """The one Node of that name."""
    return WatchedResource(Node, "/api/v1/nodes", {"fieldSelector": f"metadata.name={name}"})


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to pause between two watches, in seconds: doubling, bounded, and never in step with others.

    All watches of a cluster end at one time when its API server does.  So the first pause is anything from nothing to
    ``first``, and each later one anything between half its bound and all of it: the nodes stay spread.
    """

    first: float = 0.8
    longest: float = 15.0

    def delay(self, failures: int, chance: float) -> float:
        """After so many failures in a row; ``chance`` is uniform in [0, 1)."""
        if not failures:
            return self.first * chance
        bound = min(self.longest, self.first * 2.0 ** min(failures, 30))
        return bound * (0.5 + chance / 2)


BACKOFF = Backoff()

NOT_ALLOWED = Backoff(longest=60.0)
"""For a resource that this proxy may not read: somebody may grant it, but not every few seconds."""

_WATCH_ERRORS = (
    ApiError,
    OSError,
    http.client.HTTPException,
    msgspec.DecodeError,
    HostError,
    KubeconfigError,
)


class _CannotWatchList(ApiError):
    """The server began a WatchList and then could not: kube-apiserver on an etcd before 3.4.25 or 3.5.8."""


class Reflector:
    """Keeps one resource of a `ClusterStore` up to date; `run` is the body of its thread."""

    def __init__(
        self,
        source: ListerWatcher,
        resource: WatchedResource,
        store: ClusterStore,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``sleep`` and ``clock`` are for tests."""
        self._source = source
        self._resource = resource
        self._store = store
        self._sleep, self._clock = sleep, clock
        self._decoder = WatchDecoder(resource.kind)
        self._name = resource.path.rpartition("/")[2]
        self._version = ""
        self._ever_listed = False
        self._watch_list_offered = True
        self._failures = 0
        self._succeeded = False
        """Whether the watch under way has brought anything, or lasted."""
        self._logged = ""
        """The trouble that was logged last; empty while there is none."""

    def run(self) -> None:
        """Watch for ever."""
        while True:
            self._sleep(self.step())

    def step(self) -> float:
        """One watch until its end, with the list it may need before; returns how long to pause then, in seconds."""
        server_delay, backoff = 0.0, BACKOFF
        try:
            self._step()
        except _WATCH_ERRORS as error:
            self._record_failure(str(error))
            if isinstance(error, ApiError):
                server_delay = error.retry_after
                backoff = NOT_ALLOWED if error.code in _NOT_ALLOWED else BACKOFF
                self._version = "" if error.code == GONE else self._version
        except Exception:  # a thread that died would never be missed, and no change be seen again
            self._failures += 1
            log.exception("%s: watch broken off", self._name)
        return max(server_delay, backoff.delay(self._failures, random.random()))  # noqa: S311 - spreads load only

    def _record_failure(self, reason: str) -> None:
        """Log each reason once, however often it comes again."""
        self._failures += 1
        level = logging.DEBUG if reason == self._logged else logging.WARNING
        log.log(level, "%s: watch broken off (%d in a row): %s", self._name, self._failures, reason)
        self._logged = reason

    def _record_success(self) -> None:
        if self._logged:
            log.info("%s: watch works again", self._name)
        self._failures, self._logged, self._succeeded = 0, "", True

    def _step(self) -> None:
        if self._version:
            self._watch({"resourceVersion": self._version}, initial=False)
        elif self._watch_list_offered:
            self._watch_list_or_list()
        else:
            self._list()
            self._watch({"resourceVersion": self._version}, initial=False)

    def _watch_list_or_list(self) -> None:
        parameters = {
            "resourceVersion": "",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
        }
        try:
            self._watch(parameters, initial=True)
        except (ApiError, TimeoutError) as error:
            refused = isinstance(error, ApiError) and error.code not in _NO_WATCH_LIST
            if self._version or (refused and not isinstance(error, _CannotWatchList)):
                raise
            log.info("%s: no WatchList (%s): listing", self._name, error)
            self._watch_list_offered = False

    def _list(self) -> None:
        """From the server's cache the first time; later only what is newer than all we have seen will do."""
        version = {} if self._ever_listed else {"resourceVersion": "0"}
        listed = self._decoder.decode_list(
            self._source.get(self._resource.path, {**self._resource.selectors, **version})
        )
        self._replace(listed.objects, listed.rejected, listed.version)

    def _watch(self, parameters: Mapping[str, str], *, initial: bool) -> None:
        length = random.uniform(*WATCH_SECONDS)  # noqa: S311 - spreads load only
        query = {
            **self._resource.selectors,
            **parameters,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(length)),
        }
        self._succeeded = False
        with self._source.stream(self._resource.path, query, INITIAL_TIMEOUT_SECONDS) as stream:
            lines = _whole_lines(stream)
            if initial:
                self._take_initial(lines)
            stream.set_read_timeout(IDLE_TIMEOUT_SECONDS)
            self._follow(lines)

    def _follow(self, lines: Iterator[bytes]) -> None:
        began = self._clock()
        try:
            for some in lines:
                self._take(self._decoder.decode_events(some))
        except TimeoutError:
            log.info("%s: silent for %g s, asking anew", self._name, IDLE_TIMEOUT_SECONDS)
        finally:
            if self._clock() - began >= MIN_WATCH_SECONDS:
                self._record_success()
        if not self._succeeded:
            raise ConnectionError(f"closed by the server within {MIN_WATCH_SECONDS:g} s, without an event")

    def _take_initial(self, lines: Iterator[bytes]) -> None:
        """All objects there are, up to the bookmark that says so; nothing is believed before that."""
        found: dict[Key, Change] = {}
        for some in lines:
            added = self._decoder.decode_added(some)
            if added is not None:
                found |= added
                continue
            events = self._decoder.decode_events(some)
            for index, event in enumerate(events):
                match event:
                    case WatchedChange(change):
                        found[_key(change)] = change
                    case Bookmark(version, complete=True):
                        rejected = [item for item in found.values() if isinstance(item, Rejected)]
                        objects = [item for item in found.values() if isinstance(item, self._resource.kind)]
                        self._replace(objects, rejected, version)
                        self._record_success()
                        self._take(events[index + 1 :])
                        return
                    case Bookmark():
                        pass
                    case WatchError(code, message):
                        raise _CannotWatchList(code, message)
        raise ConnectionError("closed before the end of the initial events")

    def _take(self, events: Sequence[WatchEvent]) -> None:
        """Later events.  They are applied together, so that a burst is one change."""
        changes: list[Change] = []
        failure: WatchError | None = None
        for event in events:
            match event:
                case WatchedChange(change, version):
                    changes.append(change)
                    self._version = version or self._version
                case Bookmark(version):
                    self._version = version
                case WatchError():
                    failure = event
                    break
        if changes:
            self._record_success()
        self._log_rejected(change for change in changes if isinstance(change, Rejected))
        self._store.apply(self._resource.kind, changes)
        if failure is not None:
            raise ApiError(failure.code, failure.message)

    def _replace(self, objects: Sequence[Watched], rejected: Sequence[Rejected], version: str) -> None:
        self._log_rejected(rejected)
        self._store.replace(self._resource.kind, objects, rejected)
        self._version, self._ever_listed = version, True
        log.info("%s: %d known at version %s", self._name, len(objects), version)

    def _log_rejected(self, rejected: Iterable[Rejected]) -> None:
        for bad in rejected:
            log.warning("%s %s/%s set aside: %s", bad.kind, *bad.key, bad.reason)


def _key(change: Change) -> Key:
    return change.key if isinstance(change, Removed | Rejected) else key_of(change)


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces cut anew, so that each ends where a line ends."""
    rest = b""
    for piece in pieces:
        whole, newline, tail = piece.rpartition(b"\n")
        if newline:
            yield rest + whole
            rest = tail
        else:
            rest += tail
