"""Small tools for reading API fields: complaints as data, bounds of ports."""

from __future__ import annotations

from collections.abc import Callable

from kproxy import api
from kproxy.state.values import Note

Complain = Callable[[str], None]
"""Takes the text of a note about the object at hand."""


def complainer(item: api.Object, notes: list[Note]) -> Complain:
    """A `Complain` that appends to ``notes``."""

    def complain(text: str) -> None:
        notes.append(Note("/".join(api.key_of(item)), text))

    return complain


def is_port(number: int) -> bool:
    """Whether it is a port number that traffic can have."""
    return 0 < number < 65536
