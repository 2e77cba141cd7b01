"""Objects that a case's steps write, as YAML for kubectl. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import yaml

from kproxy.conformance.binding.bind import bind_cases
from kproxy.conformance.binding.world import Change, Key, Put, Remove, RestartProxy, WithholdEvents, World
from kproxy.conformance.case import Case


def manifests_by_step(case: Case) -> Mapping[int, str]:
    """YAML of the steps that write something, by step number, in the case's first family."""
    world = World(bind_cases([case])[0])
    known: dict[Key, object] = dict(world.objects)
    texts = {}
    for number, step in enumerate(case.steps, 1):
        if parts := list(_manifests(world.apply_step(step), known)):
            texts[number] = "---\n".join(parts)
        known = dict(world.objects)
    return texts


def _manifests(changes: tuple[Change, ...], known: Mapping[Key, object]) -> Iterator[str]:
    """YAML of each object; one that is written again unchanged is left out."""
    for change in changes:
        match change:
            case Put(document=document):
                metadata = document["metadata"]
                key = (document["kind"], metadata.get("namespace", ""), metadata["name"])
                if known.get(key) != document:
                    yield _yaml(_without_empty(document))
            case Remove(key=(kind, namespace, name)):
                yield f"# delete {kind} {namespace}/{name}\n"
            case RestartProxy(while_down=meanwhile):
                yield from _manifests(meanwhile, known)
            case WithholdEvents(changes=later):
                yield from _manifests(later, known)
            case _:
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
    """YAML dumper in C where there is one, which is ten times as fast."""

    def ignore_aliases(self, _: object) -> bool:
        return True
