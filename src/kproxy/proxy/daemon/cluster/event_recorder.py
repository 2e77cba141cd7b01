"""Events on objects of the cluster, as ``kubectl describe`` shows them (``life.events``).

Beside the pipe: any thread puts events in a queue, one thread sends them. Best effort: nothing waits for an event,
and one that cannot be sent within a minute is dropped.

API: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import enum
import http.client
import logging
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from kproxy.linux.host import HostError
from kproxy.proxy.daemon.cluster.client import ApiError
from kproxy.proxy.daemon.cluster.kubeconfig import KubeconfigError

CONTROLLER = "kube-proxy"
"""Reporting controller: kube-proxy's name, so that events of a replacement are found where kube-proxy's were."""

START = "StartKubeProxy"
"""Value of ``action`` for most events."""

MAX_TRIES = 5
FIRST_WAIT = 2.0
QUEUE_SIZE = 100
_NOTE_BYTES = 1024
_SHARED_NAMESPACE = "default"

log = logging.getLogger(__name__)


class EventType(enum.Enum):
    """The two kinds of events."""

    NORMAL = "Normal"
    WARNING = "Warning"


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object that an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = msgspec.field(default="")


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its object, reason, action and text."""

    regarding: ObjectReference
    type: EventType
    reason: str
    action: str
    note: str = ""


class EventClient(Protocol):
    """The part of `kproxy.proxy.daemon.cluster.client.ApiClient` that events need."""

    def post(self, path: str, body: bytes) -> bytes:
        """Raises `ApiError`, `OSError` or `http.client.HTTPException`."""


def node_reference(name: str, uid: str = "") -> ObjectReference:
    """Node as the object of an event."""
    return ObjectReference(kind="Node", api_version="v1", name=name, uid=uid)


def service_reference(namespace: str, name: str, uid: str = "") -> ObjectReference:
    """Service as the object of an event."""
    return ObjectReference(kind="Service", api_version="v1", namespace=namespace, name=name, uid=uid)


def event_path(event: Event) -> str:
    """API path to post an event to: in its object's namespace, or the default one."""
    return f"/apis/events.k8s.io/v1/namespaces/{event.regarding.namespace or _SHARED_NAMESPACE}/events"


def encode_event(event: Event, node: str, nanoseconds: int) -> bytes:
    """Event (events.k8s.io/v1) as JSON; ``nanoseconds`` since the epoch give its time and name."""
    when = datetime.fromtimestamp(nanoseconds // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return msgspec.json.encode(
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{event.regarding.name}.{nanoseconds:x}",
                "namespace": event.regarding.namespace or _SHARED_NAMESPACE,
            },
            "eventTime": f"{when}.{nanoseconds % 10**9 // 1000:06}Z",
            "reportingController": CONTROLLER,
            "reportingInstance": f"{CONTROLLER}-{node}",
            "type": event.type.value,
            "reason": event.reason,
            "action": event.action,
            "note": event.note.encode()[:_NOTE_BYTES].decode(errors="ignore"),
            "regarding": event.regarding,
        }
    )


class EventRecorder:
    """Queue of events from any thread; `run` is the body of the thread that sends them."""

    def __init__(self, poster: EventClient, node: str, sleep: Callable[[float], None] = time.sleep) -> None:
        """``node`` is this node's name."""
        self._poster, self._node, self._sleep = poster, node, sleep
        self._queue: queue.Queue[tuple[Event, int]] = queue.Queue(QUEUE_SIZE)

    def record(self, event: Event) -> None:
        """Queue an event; returns at once, and drops the event when the queue is full."""
        try:
            self._queue.put_nowait((event, time.time_ns()))
        except queue.Full:
            log.warning("too many events wait to be sent; dropped %s", event.reason)

    def run(self) -> None:
        """Send events for ever."""
        while True:
            self.send_next()

    def send_next(self) -> None:
        """Wait for an event and send it; after a minute of failures drop it."""
        event, when = self._queue.get()
        try:
            self._send(event, when)
        except Exception:  # a dead thread would go unnoticed, and with it all later events
            log.exception("event %s could not be sent", event.reason)
        finally:
            self._queue.task_done()

    @property
    def idle(self) -> bool:
        """True if every event has been sent or dropped."""
        return self._queue.unfinished_tasks == 0

    def _send(self, event: Event, when: int) -> None:
        for attempt in range(MAX_TRIES):
            try:
                self._poster.post(event_path(event), encode_event(event, self._node, when))
            except ApiError as error:
                if error.code < 500 and error.code != http.client.TOO_MANY_REQUESTS:
                    log.info("event %s was refused: %s", event.reason, error)
                    return
                reason: Exception = error
            except (OSError, http.client.HTTPException, HostError, KubeconfigError) as error:
                reason = error
            else:
                return
            self._sleep(FIRST_WAIT * 2**attempt)
        log.info("event %s could not be sent: %s", event.reason, reason)
