"""Places in source code that cite an ID: file, line, and the function or class around it.

Files are searched as text, and only those with a hit are parsed.  Reads files and imports none of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import kproxy

PACKAGE = Path(kproxy.__file__).parent


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; ``name``: of the function, class or constant there, empty for a module."""

    path: Path
    line: int
    name: str = ""

    def __str__(self) -> str:
        """``path:line``, from the repository's root where there is one."""
        root = repository()
        path = self.path.relative_to(root) if root and self.path.is_relative_to(root) else self.path
        return f"{path}:{self.line}"


@cache
def repository() -> Path | None:
    """The root of the clone that the package runs from; None where it is installed without its tests."""
    root = PACKAGE.parents[1]
    return root if (root / "tests/mutants").is_dir() else None


def lines_with(path: Path, text: str) -> Iterator[int]:
    """Numbers of the lines of a file that cite an ID, whole."""
    id = re.compile(rf"(?<![\w.-]){re.escape(text)}(?![\w-]|\.\w)")
    if text in _text(path):
        yield from (number for number, line in enumerate(_lines(path), 1) if id.search(line))


def first_line(path: Path, text: str) -> Place:
    """The first line of a file that has a text; its first line if none has."""
    found = (number for number, line in enumerate(_lines(path), 1) if text in line)
    return Place(path, next(found, 1))


def citations(folder: Path, id: str, *, but: str = "") -> Iterator[Place]:
    """Functions, classes and constants below a folder that cite an ID in code, docstring or comment."""
    for path in _modules(folder):
        if but and path.is_relative_to(folder / but):
            continue
        yield from dict.fromkeys(_enclosing(path, line) for line in lines_with(path, id))


def definition(path: Path, name: str) -> Place:
    """The function, class or constant of a module that has a (dotted) name."""
    found = (place for place, _ in _scopes(path) if place.name == name)
    return next(found, first_line(path, name.rpartition(".")[2]))


def _enclosing(path: Path, line: int) -> Place:
    """The innermost definition around a line; the next one where a comment stands before it."""
    around = [place for place, end in _scopes(path) if place.line <= line <= end]
    if around:
        return max(around, key=lambda place: place.line)
    return _commented(path, line) or Place(path, line)


def _commented(path: Path, line: int) -> Place | None:
    lines = _lines(path)
    while line <= len(lines) and lines[line - 1].lstrip().startswith("#"):
        line += 1
    return next((place for place, _ in _scopes(path) if place.line == line), None)


@cache
def _modules(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.rglob("*.py")))


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _lines(path: Path) -> tuple[str, ...]:
    return tuple(_text(path).splitlines())


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(_text(path))


@cache
def _scopes(path: Path) -> tuple[tuple[Place, int], ...]:
    """Every definition of a file with its last line, outer ones first."""
    return tuple(_within(path, parsed(path).body, ""))


def _within(path: Path, body: list[ast.stmt], above: str) -> Iterator[tuple[Place, int]]:
    for node, after in zip(body, [*body[1:], None], strict=True):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield Place(path, node.lineno, above + node.name), node.end_lineno or node.lineno
                yield from _within(path, node.body, f"{above}{node.name}.")
            case ast.Assign(targets=[ast.Name(id=name), *_]) | ast.AnnAssign(target=ast.Name(id=name)):
                last = after if _is_docstring(after) else node
                yield Place(path, node.lineno, above + name), (last and last.end_lineno) or node.lineno
            case _:
                pass


def _is_docstring(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
