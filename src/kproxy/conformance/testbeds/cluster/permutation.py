"""Invertible renamings that complete a few pairs to a permutation. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Permutation(Generic[T]):
    """Invertible renaming that contains ``pairs``; other values map to themselves, except those that a pair displaces.

    A cluster may use for a foreign pod an address that is one of the lab's: a displaced value gets the place that
    became free at the other end of the chain, so that ``invert(apply(x)) == x`` for every x.
    """

    def __init__(self, pairs: Mapping[T, T]) -> None:
        """Raise ValueError when two values would get the same name."""
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
        """New name of a value."""
        return self._out.get(value, value)

    def invert(self, value: T) -> T:
        """Value that has this new name."""
        return self._in.get(value, value)
