"""Mutants of watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.mutants.mutant import Function, Patch, Wrap, mutant


def _keeping_the_absent(replace: Function) -> Function:
    def keeping(self: Any, kind: Any, objects: Iterable[Any], rejected: Any) -> None:  # noqa: ANN401
        replace(self, kind, [*self._objects[kind].values(), *objects], rejected)

    return keeping


def _batch(edit: Callable[[Any, Any, list[Any]], list[Any]]) -> Wrap:
    """A wrap of `ClusterStore.apply`: of the changes that arrive together those are applied that ``edit`` returns.

    ``edit`` is given an object's state before (None for none), a function that strips metadata, and its changes in order.
    """

    def wrap(apply: Function) -> Function:
        def applying(self: Any, kind: Any, changes: Iterable[Any]) -> None:  # noqa: ANN401
            from kproxy.model.api import Rejected, key_of  # noqa: PLC0415
            from kproxy.proxy.daemon.cluster.store import Removed, _strip_metadata  # noqa: PLC0415

            def plain(change: Any) -> Any:  # noqa: ANN401
                return change if isinstance(change, Removed | Rejected) else _strip_metadata(change)

            of: dict[Any, list[Any]] = {}
            for change in changes:
                key = change.key if isinstance(change, Removed | Rejected) else key_of(change)
                of.setdefault(key, []).append(change)
            edited = [edit(self._objects[kind].get(key), plain, made) for key, made in of.items()]
            apply(self, kind, [change for made in edited for change in made])

        return applying

    return wrap


def _first(_before: Any, _plain: Any, made: list[Any]) -> list[Any]:  # noqa: ANN401
    return made[:1]


def _forgotten(_before: Any, plain: Function, made: list[Any]) -> list[Any]:  # noqa: ANN401
    """A change that the last one leaves as it is was compared with that alone."""
    return [] if len(made) > 1 and plain(made[-1]) == plain(made[-2]) else made


def _halfway(before: Any, plain: Function, made: list[Any]) -> list[Any]:  # noqa: ANN401
    """The way back is compared with what was applied, not with what came meanwhile."""
    return made[:-1] if len(made) > 1 and plain(made[-1]) == before else made


def _same_again(before: Any, _plain: Any, made: list[Any]) -> list[Any]:  # noqa: ANN401
    """A Service made anew at its address is taken for the one that was deleted."""
    from kproxy.model.api import Service  # noqa: PLC0415

    anew = made[-1]
    same = len(made) > 1 and isinstance(before, Service) and isinstance(anew, Service)
    deleted = any(not isinstance(change, Service) for change in made[:-1])
    return [] if same and deleted and anew.spec.cluster_ips == before.spec.cluster_ips else made


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
        Patch("kproxy.proxy.daemon.cluster.store:ClusterStore.apply", _batch(_first)),
        clauses="watch.changes-together.last-counts",
        needs_kernel=True,
    ),
    mutant(
        "trouble.change-forgotten-by-a-label",
        "A change that is followed at once by one of no interest is dropped with it.",
        Patch("kproxy.proxy.daemon.cluster.store:ClusterStore.apply", _batch(_forgotten)),
        clauses="watch.changes-together.last-counts",
        needs_kernel=True,
    ),
    mutant(
        "trouble.way-back-is-none",
        "A change that leads back at once to what was applied is taken for none, and the one before it counts.",
        Patch("kproxy.proxy.daemon.cluster.store:ClusterStore.apply", _batch(_halfway)),
        clauses="watch.changes-together.last-counts",
        needs_kernel=True,
    ),
    mutant(
        "trouble.made-anew-is-the-same",
        "A Service deleted and made anew at once with the same cluster IP is taken for unchanged.",
        Patch("kproxy.proxy.daemon.cluster.store:ClusterStore.apply", _batch(_same_again)),
        clauses="watch.changes-together.last-counts",
        needs_kernel=True,
    ),
)
