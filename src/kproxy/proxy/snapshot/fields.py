"""Readers of API fields: notes on bad values, bounds of ports, port names."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from kproxy.model import api
from kproxy.proxy.snapshot.values import Note

ReportNote = Callable[[str], None]
"""Function that takes the text of a note about the object at hand."""


def note_reporter(item: api.Object, notes_out: list[Note]) -> ReportNote:
    """A `ReportNote` that appends to ``notes_out``."""

    def report(text: str) -> None:
        notes_out.append(Note(type(item).__name__, api.key_of(item), text))

    return report


_LONGEST_PORT_NAME = 63
_PORT_NAME = re.compile("[a-z0-9]([a-z0-9-]*[a-z0-9])?")


@lru_cache(1024)
def is_port_name(text: str) -> bool:
    """True for an empty text or a DNS label, the API's rule for port names, which become parts of rules."""
    return not text or (len(text) <= _LONGEST_PORT_NAME and _PORT_NAME.fullmatch(text) is not None)


def is_port(number: int) -> bool:
    """True for a port number that packets can have, 1 to 65535."""
    return 0 < number < 65536
