"""Parameters of a bench, as values."""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.conformance.subjects.subject import Subject
from kproxy.lab.processes import Xtables
from tests.bench.world import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """One size in one mode, for all ``subjects`` side by side.

    ``repeat`` starts, ``changes`` endpoint changes, ``additions`` new Services.  ``patience``: seconds a proxy has for
    its first programming, or for one change.  ``budget``: seconds after which it gets no more changes, and no more
    starts; what it has done by then counts.
    """

    subjects: tuple[Subject, ...]
    mode: str
    variant: Xtables
    size: Size
    repeat: int
    changes: int
    additions: int
    patience: float
    budget: float

    @property
    def title(self) -> str:
        """Title of the run, without its subjects."""
        return f"{self.mode} {self.variant.name.lower()} {self.size}"
