"""Mutants of the proxy as the repository's tests define them, read from their source and not run.

Mutants show which rules or functions a clause rests on: the chains and sets that they take away, and the
functions of the proxy that they patch.
"""

from __future__ import annotations

import ast
import enum
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kproxy.tools.reference.places import PACKAGE, Place, definition, lines_with, parsed

_RULE_NAME = re.compile(r"[A-Z][A-Z0-9-]{3,}")
"""Chains and sets are named so in iptables and ipset: KUBE-SERVICES, FORWARD."""
_PATCHES = "tests.mutants.patches."
_FUNCTION = re.compile(r"kproxy(\.\w+)+:\w+(\.\w+)*")


@dataclass(frozen=True, slots=True)
class MutantSource:
    """A mutant's definition; ``rules``: chains and sets that it changes; ``patched``: functions that it replaces."""

    name: str
    about: str
    place: Place
    rules: tuple[str, ...]
    patched: tuple[Place, ...]


def mutants_of(root: Path, clause: str) -> Iterator[MutantSource]:
    """The mutants of a repository that a case of the clause must notice."""
    for path in sorted((root / "tests/mutants").glob("*.py")):
        if any(lines_with(path, clause)):
            yield from (_mutant(path, call) for call in _calls(path) if clause in _clauses(call))


@cache
def _calls(path: Path) -> tuple[ast.Call, ...]:
    """The calls of a module that begin with two strings: a mutant's name and what is wrong."""
    return tuple(
        node
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and len(node.args) > 1
        and all(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in node.args[:2])
    )


def _clauses(call: ast.Call) -> list[str]:
    given = (keyword.value for keyword in call.keywords if keyword.arg == "clauses")
    return [id for node in given if isinstance(node, ast.Constant) for id in str(node.value).split()]


def _mutant(path: Path, call: ast.Call) -> MutantSource:
    name, about, *patches = call.args
    known = _names(path)
    texts = [text for patch in patches for node in ast.walk(patch) for text in _texts(node, known)]
    functions = (text for text in texts if _FUNCTION.fullmatch(text))
    return MutantSource(
        name=str(ast.literal_eval(name)),
        about=str(ast.literal_eval(about)),
        place=Place(path, call.lineno),
        rules=tuple(dict.fromkeys(text for text in texts if _RULE_NAME.fullmatch(text))),
        patched=tuple(dict.fromkeys(map(_patched, functions))),
    )


def _patched(where: str) -> Place:
    """``package.module:name`` as a place: that of the definition, where the module imports the name."""
    module, _, name = where.partition(":")
    path = _file(module)
    for node in parsed(path).body:
        if isinstance(node, ast.ImportFrom) and node.module and name in {one.name for one in node.names}:
            return _patched(f"{node.module}:{name}")
    return definition(path, name)


def _file(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _texts(node: ast.AST, known: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(node, ast.expr) and isinstance(value := _value(node, known), str):
        yield value


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:  # noqa: ANN401 (whatever a constant is)
    """Value of a constant expression; None for any other."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.Attribute(value=owner, attr=name):
            found = getattr(_value(owner, known), name, None)
            return found.value if isinstance(found, enum.Enum) else found
        case ast.JoinedStr(values=parts):
            values = [_value(p.value if isinstance(p, ast.FormattedValue) else p, known) for p in parts]
            return "".join(values) if all(isinstance(value, str) for value in values) else None
        case _:
            return None


@cache
def _names(path: Path) -> Mapping[str, Any]:
    """Values of a module's imports from backends and shared patches, and of its constants, by name."""
    known: dict[str, Any] = {}
    for node in parsed(path).body:
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.startswith(
                "kproxy.proxy.backends"
            ):
                known |= {one.asname or one.name: _imported(module, one.name) for one in names}
            case ast.ImportFrom(module=str(module), names=names) if module.startswith(_PATCHES):
                folder = path.parent if path.parent.name == "patches" else path.parent / "patches"
                shared = _names(folder / f"{module.removeprefix(_PATCHES)}.py")
                known |= {one.name: shared[one.name] for one in names if one.name in shared}
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                known[name] = _value(value, known)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = zip(targets, values, strict=True)
                known |= {t.id: _value(v, known) for t, v in pairs if isinstance(t, ast.Name)}
            case _:
                pass
    return known


def _imported(module: str, name: str) -> Any:  # noqa: ANN401 (whatever a module defines)
    found = getattr(importlib.import_module(module), name, None)
    return importlib.import_module(f"{module}.{name}") if found is None else found
