"""Objects of cases that a real API server would not store as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.binding.world import Change, Put, RestartProxy, WithholdEvents, World
from kproxy.lab.apiserver import ResourceKind
from kproxy.lab.kube.store import KubeStore

KINDS = {kind.value: kind for kind in ResourceKind}


def admission_problems(
    store: KubeStore,
    instances: Sequence[Instance],
    through: Callable[[Document], Document] = lambda same: same,
) -> dict[str, str]:
    """Cases with an object that a real API server would not store as it is, and the reasons.

    ``through``: maps an object to the one that is written.
    """
    found: dict[str, str] = {}
    for instance in instances:
        world = World(instance)
        for step in instance.case.steps:
            for document in _put_by(world.apply_step(step)):
                if instance.case.id in found:
                    break
                if reason := store.admission_error(KINDS[document["kind"]], through(document)):
                    found[instance.case.id] = reason
    return found


def _put_by(changes: Sequence[Change]) -> Iterator[Document]:
    for change in changes:
        match change:
            case Put(document=document):
                yield document
            case RestartProxy(while_down=meanwhile):
                yield from _put_by(meanwhile)
            case WithholdEvents(changes=later):
                yield from _put_by(later)
            case _:
                pass
