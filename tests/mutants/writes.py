"""Mutants of writes that the kernel refuses."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import Patch, instead, mutant


def _believing(self: Any, *_: Any, **__: Any) -> None:  # noqa: ANN401
    """A failed write is taken for successful."""
    self._applied = self._plan
    self._scheduler = self._scheduler.record_noop(self.clock())


MUTANTS = (
    mutant(
        "trouble.failed-is-done",
        "What the kernel refused is taken for written.",
        Patch("kproxy.proxy.daemon.sync.family_sync:FamilySync._failed", instead(_believing)),
        clauses="writes.refused.tried-again",
        needs_kernel=True,
    ),
)
