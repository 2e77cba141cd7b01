"""A plan, or what a backend makes of it, that is used while it is being made: the first one of a large cluster.

Pure.  The daemon makes them; backends that can begin before the end use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


class IncrementalResult(Generic[V]):
    """At least one value, each of which takes the place of the one before; the last is the whole.  Not for threads."""

    def __init__(self, values: Iterable[V]) -> None:
        """``values`` are made when they are asked for."""
        self._values = iter(values)
        self.latest: V = next(self._values)

    def __iter__(self) -> Iterator[V]:
        """From the latest on."""
        yield self.latest
        for value in self._values:
            self.latest = value
            yield value

    def final(self) -> V:
        """The last, once all are made."""
        for value in self._values:
            self.latest = value
        return self.latest
