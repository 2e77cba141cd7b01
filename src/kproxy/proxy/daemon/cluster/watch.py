"""List and watch: keeps a `ClusterStore` equal to the API server, one thread per resource.

Sits between `kproxy.proxy.daemon.cluster.client` (HTTP) and the store. Theory of operation:

A `Reflector` repeats `step`, which makes one watch request and follows it to its end. Which request, depends on
``_version``, the resourceVersion up to which the store is known to be equal to the server:

- No version, at the start or after 410: a WatchList (KEP-3157), a watch that begins with all existing objects as
  ADDED events.  They are collected, and replace the store's objects of the kind at once, when the bookmark with the
  annotation ``k8s.io/initial-events-end`` arrives; a stream that ends before changes nothing.  A server that does
  not offer WatchList (400, 422, or silence) is listed instead, from then on.  The first list may come from the server's
  cache (resourceVersion 0); later ones must not be older than what was seen, so they are consistent reads.
- A version: a watch from there.  Events and bookmarks move it forward.  The server ends a watch after 300 to 600 s
  (timeoutSeconds), and the next goes on from the last version.

Over a gap, whether the connection broke, the server is down or replies with errors, nothing is removed from the store
(``watch.interrupted.changes-applied``): the rules of a node outlive its API server. Afterwards the watch
resumes at the version,
and the server sends the missed events, deletions among them. When it no longer has that version (410 Gone) the
version is forgotten and the next step lists everything; objects that are missing from the new list are deleted, and
equal ones stay the same objects, so that the gap causes no needless sync.

Connections that die without a FIN are found by a read timeout of 75 s: servers send a bookmark each minute.

Failures in a row double the pause before the next step, up to 15 s (60 s when the resource may not be read), with
jitter; a Retry-After of the server is obeyed. A watch has succeeded when it brought an event or lasted a second, so a
server that closes every watch at once is a failure too. Each reason is logged once.
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
"""Seconds until a response begins, and that a WatchList may pause before its end.

A server that does not know WatchList would never send an event.
"""

IDLE_TIMEOUT_SECONDS = 75.0
"""Idle timeout of a watch in seconds; the watch is then resumed from its last resourceVersion.

Servers send a bookmark every minute, so a longer silence means a dead connection, or a server without bookmarks, for
which resuming costs one request.
"""

MIN_WATCH_SECONDS = 1.0
"""Seconds below which a watch that ended without an event counts as a failure, even if it ended cleanly (as client-go)."""

WATCH_SECONDS = (300.0, 600.0)
"""Bounds of a watch's length in seconds; random, so that not all nodes reconnect at once (as client-go)."""

GONE = 410
"""HTTP status for a resourceVersion that the server no longer has."""

_NO_WATCH_LIST = frozenset({400, 422})
_UNAVAILABLE = frozenset({http.client.UNAUTHORIZED, http.client.FORBIDDEN, http.client.NOT_FOUND})

log = logging.getLogger(__name__)


class WatchStream(Protocol):
    """Streamed response (`kproxy.proxy.daemon.cluster.client.ResponseStream`)."""

    def __iter__(self) -> Iterator[bytes]:
        """Pieces of the body, as they arrive."""

    def set_read_timeout(self, seconds: float) -> None:
        """Set the longest pause between pieces, in seconds."""


class ListerWatcher(Protocol):
    """The methods of `kproxy.proxy.daemon.cluster.client.ApiClient` that a watch needs."""

    def get(self, path: str, parameters: Mapping[str, str]) -> bytes:
        """Body of a response."""

    def stream(
        self, path: str, parameters: Mapping[str, str], read_timeout: float
    ) -> AbstractContextManager[WatchStream]:
        """Streamed response."""


@dataclass(frozen=True, slots=True)
class WatchedResource:
    """Resource to watch: its kind, API path, and the selectors of its objects."""

    kind: Kind
    path: str
    selectors: Mapping[str, str]


SERVICES = WatchedResource(
    Service,
    "/api/v1/services",
    {"fieldSelector": "spec.clusterIP!=None", "labelSelector": "!service.kubernetes.io/service-proxy-name"},
)
"""Services with a cluster IP and without another proxy's label.

Clauses ``objects.headless.untouched``, ``objects.proxy-name-label.untouched``.
"""

ENDPOINT_SLICES = WatchedResource(
    EndpointSlice,
    "/apis/discovery.k8s.io/v1/endpointslices",
    {"labelSelector": "!service.kubernetes.io/headless"},
)
"""EndpointSlices, except those of headless Services (``slices.headless-label.ignored``)."""


SERVICE_CIDRS = WatchedResource(ServiceCIDR, "/apis/networking.k8s.io/v1/servicecidrs", {})
"""ServiceCIDRs, for ``cluster-ip.unallocated.not-served``."""


def node_resource(name: str) -> WatchedResource:
    """The one Node of that name."""
    return WatchedResource(Node, "/api/v1/nodes", {"fieldSelector": f"metadata.name={name}"})


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pause between two watches, in seconds: doubling, bounded, and with jitter.

    All watches of a cluster end at one time when its API server does. So the first pause is uniform in 0 to
    ``first``, and each later one uniform in half its bound to its bound: the nodes stay spread.
    """

    first: float = 0.8
    longest: float = 15.0

    def delay(self, failures: int, chance: float) -> float:
        """Pause after so many failures in a row; ``chance`` is uniform in [0, 1)."""
        if not failures:
            return self.first * chance
        bound = min(self.longest, self.first * 2.0 ** min(failures, 30))
        return bound * (0.5 + chance / 2)


BACKOFF = Backoff()

UNAVAILABLE = Backoff(longest=60.0)
"""Pauses for a resource that this proxy may not read, or that the server does not have: that may change, but not within seconds."""

_WATCH_ERRORS = (
    ApiError,
    OSError,
    http.client.HTTPException,
    msgspec.DecodeError,
    HostError,
    KubeconfigError,
)


class _CannotWatchList(ApiError):
    """WatchList that the server began and then refused, or ignored: kube-apiserver on an etcd before 3.4.25 or 3.5.8."""


class Reflector:
    """Keeps one resource of a `ClusterStore` up to date; `run` is the body of its thread."""

    def __init__(
        self,
        source: ListerWatcher,
        resource: WatchedResource,
        store: ClusterStore,
        *,
        server: str = "the API server",
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``server``: its URL, for messages; ``sleep`` and ``clock`` are for tests."""
        self._source = source
        self._resource = resource
        self._store = store
        self._sleep, self._clock = sleep, clock
        self._server = server
        self._decoder = WatchDecoder(resource.kind)
        self._name = resource.path.rpartition("/")[2]
        self._version = ""
        self._ever_listed = False
        self._watch_list_offered = True
        self._failures = 0
        self._succeeded = False
        """True if the present watch has brought an event, or lasted."""
        self._began_again = False
        """True if a version was forgotten since the last success."""
        self._logged = ""
        """Reason that was logged last; empty after a success."""

    def run(self) -> None:
        """Watch for ever."""
        while True:
            self._sleep(self.step())

    def step(self) -> float:
        """Make one watch and follow it to its end, after a list if needed; returns the pause before the next, in seconds."""
        server_delay, backoff = 0.0, BACKOFF
        try:
            self._step()
        except _WATCH_ERRORS as error:
            self._record_failure(str(error))
            if isinstance(error, ApiError):
                server_delay = error.retry_after
                backoff = UNAVAILABLE if error.code in _UNAVAILABLE else BACKOFF
                if error.code == GONE and self._version:
                    return max(server_delay, self._begin_again())
        except Exception:  # a dead thread would go unnoticed, and with it all changes
            self._failures += 1
            log.exception("%s: watch broken off", self._name)
        return max(server_delay, backoff.delay(self._failures, random.random()))  # noqa: S311 - spreads load only

    def _begin_again(self) -> float:
        """Forget the version, which the server has forgotten; returns the pause, a short one the first time.

        A server that answers so works again, however long it was away before.
        """
        self._version = ""
        failures = self._failures if self._began_again else 0
        self._began_again = True
        return BACKOFF.delay(failures, random.random())  # noqa: S311 - spreads load only

    def _record_failure(self, reason: str) -> None:
        """Count a failure and log its reason: repetitions at debug level only."""
        self._failures += 1
        level = logging.DEBUG if reason == self._logged else logging.WARNING
        log.log(
            level,
            "%s: watch of %s broken off (%d in a row): %s",
            self._name,
            self._server,
            self._failures,
            reason,
        )
        self._logged = reason

    def _record_success(self) -> None:
        if self._logged:
            log.info("%s: watch works again", self._name)
        self._failures, self._logged, self._succeeded = 0, "", True
        self._began_again = False

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
        except ApiError as error:
            refused = error.code not in _NO_WATCH_LIST
            if self._version or (refused and not isinstance(error, _CannotWatchList)):
                raise
            log.info("%s: no WatchList (%s): listing", self._name, error)
            self._watch_list_offered = False

    def _list(self) -> None:
        """List all objects: the first time from the server's cache (resourceVersion 0), later consistently.

        A cached list may be older than what was seen before.
        """
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
                try:
                    self._take_initial(lines)
                except TimeoutError as error:  # one of the connection would not concern WatchList
                    raise _CannotWatchList(http.client.OK, "it sends no initial events") from error
            stream.set_read_timeout(IDLE_TIMEOUT_SECONDS)
            self._follow(lines)

    def _follow(self, lines: Iterator[bytes]) -> None:
        began = self._clock()
        try:
            for some in lines:
                self._take(self._decoder.decode_events(some))
        except TimeoutError:
            log.info("%s: silent for %g s, resuming the watch", self._name, IDLE_TIMEOUT_SECONDS)
        finally:
            if self._clock() - began >= MIN_WATCH_SECONDS:
                self._record_success()
        if not self._succeeded:
            raise ConnectionError(f"closed by the server within {MIN_WATCH_SECONDS:g} s, without an event")

    def _take_initial(self, lines: Iterator[bytes]) -> None:
        """Replace the store's objects by the initial events, once the bookmark that ends them arrives.

        Nothing is applied before that.
        """
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
        """Apply later events, all of one read together, so that a burst is one change."""
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
    """The pieces divided anew, so that each ends at the end of a line."""
    rest = b""
    for piece in pieces:
        whole, newline, tail = piece.rpartition(b"\n")
        if newline:
            yield rest + whole
            rest = tail
        else:
            rest += tail
