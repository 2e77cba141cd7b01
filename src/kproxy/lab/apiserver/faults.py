"""Faults of the API server to inject, as values in one mutable list.

`watch` and `server` consult this list before they respond. Faults that are events and no states (dropped watches, a
closed listener, forgotten history) are methods of `server.ApiServer` and `store.Store.compact`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kproxy.lab.apiserver.resources import ALL_KINDS, ResourceKind
from kproxy.lab.apiserver.routes import ALL_VERBS, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Respond with an error ``code``; ``retry_after`` in seconds makes clients of client-go wait for it."""

    code: int = 503
    retry_after: int | None = None
    kinds: frozenset[ResourceKind] = ALL_KINDS
    verbs: frozenset[Verb] = ALL_VERBS


@dataclass(frozen=True, slots=True, kw_only=True)
class StallRequests:
    """Hold requests back, and respond from the state at the time they are released.

    LIST: lists, and the present objects at the start of a watch. WATCH: changes, and bookmarks.
    """

    kinds: frozenset[ResourceKind] = ALL_KINDS
    verbs: frozenset[Verb] = frozenset({Verb.LIST})


@dataclass(frozen=True, slots=True, kw_only=True)
class StallBookmarks:
    """Send no periodic bookmarks (the one that ends the initial events is sent)."""

    kinds: frozenset[ResourceKind] = ALL_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStream:
    """Send watch events one by one, ``seconds`` apart."""

    seconds: float
    kinds: frozenset[ResourceKind] = ALL_KINDS


Fault = Refuse | StallRequests | StallBookmarks | SlowStream


class Faults:
    """The faults in force."""

    def __init__(self) -> None:
        self._active: list[Fault] = []
        self._listeners: set[Callable[[], None]] = set()

    @property
    def active(self) -> tuple[Fault, ...]:
        """The faults in force, in the order they were injected."""
        return tuple(self._active)

    def inject(self, fault: Fault, *, seconds: float | None = None) -> None:
        """Put a fault in force, until lifted or for some seconds (then inside a running loop)."""
        self._active.append(fault)
        self._announce()
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self.lift, fault)

    def lift(self, fault: Fault) -> None:
        """End a fault, if it is still in force."""
        if fault in self._active:
            self._active.remove(fault)
            self._announce()

    @contextmanager
    def during(self, fault: Fault) -> Iterator[None]:
        """Keep a fault in force for the length of the context."""
        self.inject(fault)
        try:
            yield
        finally:
            self.lift(fault)

    @contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call ``listener`` whenever the faults change, for the length of the context."""
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)

    def refusal(self, verb: Verb, kind: ResourceKind) -> Refuse | None:
        """Fault by which a request is to be refused, None for none."""
        for fault in self._active:
            if isinstance(fault, Refuse) and kind in fault.kinds and verb in fault.verbs:
                return fault
        return None

    def holds(self, verb: Verb, kind: ResourceKind) -> bool:
        """True if requests or events of this kind are held back."""
        return any(isinstance(f, StallRequests) and kind in f.kinds and verb in f.verbs for f in self._active)

    def stalls_bookmarks(self, kind: ResourceKind) -> bool:
        """True if periodic bookmarks are left out."""
        return any(isinstance(f, StallBookmarks) and kind in f.kinds for f in self._active)

    def seconds_between_events(self, kind: ResourceKind) -> float:
        """Pause after each watch event in seconds; 0 when streams are not slowed."""
        return max(
            (f.seconds for f in self._active if isinstance(f, SlowStream) and kind in f.kinds), default=0
        )

    async def released(self, verb: Verb, kind: ResourceKind) -> None:
        """Wait while requests or events of this kind are held back."""
        changed = asyncio.Event()
        with self.listening(changed.set):
            while self.holds(verb, kind):
                await changed.wait()
                changed.clear()

    def _announce(self) -> None:
        for listener in tuple(self._listeners):
            listener()
