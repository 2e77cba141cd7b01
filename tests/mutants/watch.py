"""Mutants of watches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.mutants.mutant import Function, Patch, mutant


def _keeping_the_absent(replace: Function) -> Function:
    def keeping(self: Any, kind: Any, objects: Iterable[Any], rejected: Any) -> None:  # noqa: ANN401
        replace(self, kind, [*self._objects[kind].values(), *objects], rejected)

    return keeping


def _first_of_each(apply: Function) -> Function:
    """Of several changes of an object that arrive together only the first is applied."""
    from kproxy.model.api import Rejected, key_of  # noqa: PLC0415
    from kproxy.proxy.daemon.cluster.store import Removed  # noqa: PLC0415

    def applying(self: Any, kind: Any, changes: Iterable[Any]) -> None:  # noqa: ANN401
        first: dict[Any, Any] = {}
        for change in changes:
            first.setdefault(change.key if isinstance(change, Removed | Rejected) else key_of(change), change)
        apply(self, kind, first.values())

    return applying


MUTANTS = (
    mutant(
        "trouble.absent-is-kept",
        "Objects that are missing from a new list are kept.",
        Patch("kproxy.proxy.daemon.cluster.store:ClusterStore.replace", _keeping_the_absent),
        clauses="watch.interrupted.changes-applied",
        needs_kernel=True,
    ),
    mutant(
        "trouble.first-counts",
        "Of several changes of an object that come together the first counts.",
        Patch("kproxy.proxy.daemon.cluster.store:ClusterStore.apply", _first_of_each),
        clauses="watch.changes-together.last-counts",
        needs_kernel=True,
    ),
)
