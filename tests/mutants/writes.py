"""Mutants of writes that the kernel refuses."""

from __future__ import annotations

from typing import Any

from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family
from tests.mutants.mutant import Function, Patch, instead, mutant


def _believing(self: Any, *_: Any, **__: Any) -> None:  # noqa: ANN401
    """A failed write is taken for successful."""
    self._applied = self._plan
    self._scheduler = self._scheduler.record_noop(self.clock())


_REFUSED: set[Family] = set()
"""Families whose last write was refused."""


def _only_together(bring_up_to_date: Function) -> Function:
    """Nothing is written for a family while another one's last write was refused."""

    def brought(self: Any, cluster: Any) -> Any:  # noqa: ANN401
        if others := _REFUSED - {self.family}:
            raise HostError("writing", f"{others} is late", Reason.OTHER)
        try:
            written = bring_up_to_date(self, cluster)
        except HostError:
            _REFUSED.add(self.family)
            raise
        _REFUSED.discard(self.family)
        return written

    return brought


MUTANTS = (
    mutant(
        "trouble.failed-is-done",
        "What the kernel refused is taken for written.",
        Patch("kproxy.proxy.daemon.sync.family_sync:FamilySync._failed", instead(_believing)),
        clauses="writes.refused.tried-again",
        needs_kernel=True,
    ),
    mutant(
        "trouble.families-wait-for-one-another",
        "As long as the kernel refuses what is written for one family, nothing is written for the other.",
        Patch("kproxy.proxy.daemon.sync.family_sync:FamilySync._bring_up_to_date", _only_together),
        clauses="writes.refused-in-one-family.other-followed",
        needs_kernel=True,
    ),
)
