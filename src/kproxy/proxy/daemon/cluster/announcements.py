"""Kubernetes Events that the daemon records about its Node and about Services (``life.events``).

Between `kproxy.proxy.daemon.startup`, which knows when, and `kproxy.proxy.daemon.cluster.event_recorder`, which
sends.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from kproxy.model.api import Key, Service
from kproxy.proxy.backends import find_backend
from kproxy.proxy.daemon.cluster.event_recorder import (
    START,
    Event,
    EventRecorder,
    EventType,
    ObjectReference,
    service_reference,
)
from kproxy.proxy.daemon.cluster.store import ClusterStore
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.http.listeners import HEALTH, CannotListen

FINAL_EVENT_TIMEOUT_SECONDS = 3.0
"""Seconds that a last event may delay the end of the daemon."""

_SYNC = "SyncServices"


@dataclass(frozen=True, slots=True)
class DaemonEvents:
    """Recorder of the daemon's own events: ``node`` is this node; ``store`` knows the Services."""

    recorder: EventRecorder
    node: ObjectReference
    store: ClusterStore

    def started(self, config: Configuration) -> None:
        """Record that the proxy runs."""
        self._of_node(EventType.NORMAL, "Starting")
        deprecation = find_backend(config.mode).deprecation
        if deprecation is not None:
            self._of_node(EventType.WARNING, *deprecation)

    def cannot_listen(self, error: CannotListen) -> None:
        """Record that an address could not be bound, and wait shortly until the event is sent (``hz.bind-retry``, ``met.bind``).

        The daemon ends afterwards.
        """
        what = "FailedToStartProxierHealthcheck" if error.what == HEALTH else "FailedToStartMetricServer"
        self._of_node(EventType.WARNING, what, str(error))
        deadline = time.monotonic() + FINAL_EVENT_TIMEOUT_SECONDS
        while not self.recorder.idle and time.monotonic() < deadline:
            time.sleep(0.01)

    def health_check_failed(self, service: Key, why: str) -> None:
        """Record that a health check node port cannot be opened (``health-check.port-in-use.tried-again``)."""
        found = self.store.cluster().services.get(service)
        uid = found.metadata.uid if isinstance(found, Service) else ""
        reference = service_reference(*service, uid)
        self.recorder.record(
            Event(reference, EventType.WARNING, "FailedToStartServiceHealthcheck", _SYNC, why)
        )

    def _of_node(self, kind: EventType, reason: str, note: str = "") -> None:
        self.recorder.record(Event(self.node, kind, reason, START, note))
