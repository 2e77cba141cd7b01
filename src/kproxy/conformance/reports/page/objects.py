"""The objects that a case's steps write, as YAML, from the catalogue.  Pure.

Results do not hold them: they follow from the case.  A case that is another one by now has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import msgspec
import yaml

from kproxy.conformance.bind import instances
from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.reports.reading import CaseRead, StepRead
from kproxy.conformance.wording import demands, describe
from kproxy.conformance.world import AddAddress, Change, Key, Put, Remove, RestartProxy, World


def objects_of(id: str, read: CaseRead) -> Mapping[int, str]:
    """What the steps of a case write, by their numbers, in the case's first family."""
    case = _catalogue().get(id)
    if case is None or read.steps != tuple(StepRead(describe(step), demands(step)) for step in case.steps):
        return {}
    world = World(instances([case])[0])
    known: dict[Key, object] = dict(world.objects)
    written = {}
    for number, step in enumerate(case.steps, 1):
        if parts := list(_parts(world.change(step), known)):
            written[number] = "---\n".join(parts)
        known = dict(world.objects)
    return written


@cache
def _catalogue() -> Mapping[str, Case]:
    return {case.id: case for case in CATALOGUE}


def _parts(changes: tuple[Change, ...], known: Mapping[Key, object]) -> Iterator[str]:
    """A text for each object; one that is written again as it was is left out."""
    for change in changes:
        match change:
            case Put(document=document):
                metadata = document["metadata"]
                key = (document["kind"], metadata.get("namespace", ""), metadata["name"])
                if known.get(key) != document:
                    yield _yaml(_without_empty(document))
            case Remove(key=(kind, namespace, name)):
                yield f"# delete {kind} {namespace}/{name}\n"
            case RestartProxy(meanwhile=meanwhile):
                yield from _parts(meanwhile, known)
            case AddAddress():
                pass


def _without_empty(value: object) -> object:
    match value:
        case Mapping():
            return {key: _without_empty(item) for key, item in value.items() if item not in ({}, [], None)}
        case list():
            return list(map(_without_empty, value))
        case _:
            return value


def _yaml(value: object) -> str:
    plain = msgspec.json.decode(msgspec.json.encode(value))
    return str(yaml.dump(plain, Dumper=_Dumper, sort_keys=False, width=100))


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Whichever there is; the one in C is ten times as fast."""

    def ignore_aliases(self, _: object) -> bool:
        return True
