"""Small tools for reading API fields: complaints as data, bounds of ports, their names."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from kproxy.model import api
from kproxy.proxy.snapshot.values import Note

Complain = Callable[[str], None]
"""Takes the text of a note about the object at hand."""


def note_reporter(item: api.Object, notes_out: list[Note]) -> Complain:
    """A `Complain` that appends to ``notes_out``."""

    def complain(text: str) -> None:
        notes_out.append(Note(type(item).__name__, api.key_of(item), text))

    return complain


_LONGEST_PORT_NAME = 63
_PORT_NAME = re.compile("[a-z0-9]([a-z0-9-]*[a-z0-9])?")


@lru_cache(1024)
def is_port_name(text: str) -> bool:
    """Whether it is a DNS label or empty, as the API has names of ports; they become parts of rules."""
    return not text or (len(text) <= _LONGEST_PORT_NAME and _PORT_NAME.fullmatch(text) is not None)


def is_port(number: int) -> bool:
    """Whether it is a port number that traffic can have."""
    return 0 < number < 65536
