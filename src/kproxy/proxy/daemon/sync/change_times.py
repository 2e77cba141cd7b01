"""Times of the changes that a family has yet to apply: the start of its network programming latency.

Written by a `kproxy.proxy.daemon.cluster.store.Subscription`, which also reports when they are applied.  The controller that makes
EndpointSlices dates each change in an annotation (``met.network_programming_duration_seconds``).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kproxy.model.api import EndpointSlice, Key, Metadata, key_of
from kproxy.model.network import Family

ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time"


class TriggerTimes:
    """The change times of one family's slices; not thread-safe: the subscription holds its lock."""

    def __init__(self, family: Family, started: float = 0.0) -> None:
        """Begin; changes before ``started`` (seconds since the epoch) are not counted: this process could not apply them."""
        self._family, self._started = family, started
        self._waiting: dict[Key, list[float]] = {}
        self._in_hand: list[float] = []

    def is_other_family(self, item: object) -> bool:
        """True if an object is irrelevant for the family: a slice of the other one."""
        return isinstance(item, EndpointSlice) and item.address_type != self._family.value

    def note(self, changed: Iterable[object], removed: Iterable[Key]) -> None:
        """Record changed slices; drop the times of removed ones, which leave nothing to program."""
        for item in changed:
            if isinstance(item, EndpointSlice) and item.address_type == self._family.value:
                time = trigger_time(item.metadata)
                if time is not None and time > self._started:
                    self._waiting.setdefault(key_of(item), []).append(time)
        for key in removed:
            self._waiting.pop(key, None)

    def take(self) -> None:
        """Mark the recorded changes as being applied."""
        for times in self._waiting.values():
            self._in_hand += times
        self._waiting = {}

    def applied(self) -> tuple[float, ...]:
        """Times of the taken changes, which are applied now, in seconds since the epoch."""
        times, self._in_hand = tuple(self._in_hand), []
        return times


def trigger_time(metadata: Metadata) -> float | None:
    """Seconds since the epoch, or None where there is no such annotation or it is no time."""
    text = metadata.annotations.get(ANNOTATION)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.timestamp()
