"""One-to-one renamings that can be undone, whatever else has the same name.  Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Permutation(Generic[T]):
    """``pairs``, and everything else left as it is, but for what must make room.

    A cluster may use an address for a pod of somebody's that is another one's in the lab: what is in
    the way gets the place that became free at the other end of the chain, so that ``inward(outward(x)) == x`` for every x.
    """

    def __init__(self, pairs: Mapping[T, T]) -> None:
        """Raises ValueError when two things would get the same name."""
        self._out = dict(pairs)
        self._in = {new: old for old, new in pairs.items()}
        if len(self._in) != len(self._out):
            raise ValueError("two things have the same name")
        for end in [new for new in self._in if new not in self._out]:
            start = end
            while start in self._in:
                start = self._in[start]
            self._out[end], self._in[start] = start, end

    def apply(self, value: T) -> T:
        """Its new name."""
        return self._out.get(value, value)

    def invert(self, value: T) -> T:
        """What has this name."""
        return self._in.get(value, value)
