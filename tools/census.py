"""Counts of a source tree: lines, modules, functions, nouns defined more than once, dialect in identifiers and docstrings.

``python -m tools.census [TREE...]``: a column for each tree, by default this one; a tree is a folder with ``src/`` and ``tests/``.
Figures for people who compare two states of the code (``git worktree add ../before COMMIT``); nothing is judged here,
`tests/unit/repository/test_vocabulary.py` does that.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DIALECT = re.compile(r"\b(asked|asks|told|tells|words|whoever|nobody|somebody|heard|hears)\b")
DIALECT_PARTS = {"words", "asked", "told", "whoever"}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass
class Census:
    """What was counted in one tree's ``src``."""

    modules: int = 0
    lines: int = 0
    test_lines: int = 0
    functions: list[int] = field(default_factory=list)
    """Lines of each."""
    classes: Counter[str] = field(default_factory=Counter)
    """Modules that define a class of that name."""
    docstrings: list[str] = field(default_factory=list)
    identifiers: set[str] = field(default_factory=set)
    folders: Counter[str] = field(default_factory=Counter)
    """Modules directly in each folder."""


def take_census(tree: Path) -> Census:
    """Count a tree's package and the lines of its tests."""
    census = Census()
    for path in sorted((tree / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        census.modules += 1
        census.lines += text.count("\n")
        census.folders[str(path.parent.relative_to(tree))] += 1
        _count_module(census, ast.parse(text))
    census.test_lines = sum(
        path.read_text(encoding="utf-8").count("\n") for path in (tree / "tests").rglob("*.py")
    )
    return census


def _count_module(census: Census, module: ast.Module) -> None:
    defined = set()
    for node in ast.walk(module):
        if isinstance(node, Definition):
            census.identifiers.add(node.name)
            if isinstance(node, ast.ClassDef):
                defined.add(node.name)
            else:
                census.functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
        elif isinstance(node, ast.Name):
            census.identifiers.add(node.id)
        elif isinstance(node, ast.arg):
            census.identifiers.add(node.arg)
        elif isinstance(node, ast.Attribute):
            census.identifiers.add(node.attr)
    census.classes.update(defined)
    census.docstrings.extend(_docstrings(module))


def _docstrings(module: ast.Module) -> Iterator[str]:
    """Docstrings of the module, its classes and functions, and strings that stand below a field or constant."""
    for node in ast.walk(module):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                value = statement.value.value
                if isinstance(value, str):
                    yield value


def _rows(census: Census) -> Iterator[tuple[str, str]]:
    lengths = sorted(census.functions)
    parts = [
        name
        for name in census.identifiers
        if DIALECT_PARTS & {part.lower() for part in re.findall(r"[A-Z]?[a-z]+", name)}
    ]
    yield "modules", f"{census.modules:,}"
    yield "lines of src", f"{census.lines:,}"
    yield "lines of tests", f"{census.test_lines:,}"
    yield "functions", f"{len(lengths):,}"
    yield (
        "function lines: median / p90 / longest",
        f"{statistics.median(lengths):.0f} / {lengths[len(lengths) * 9 // 10]} / {lengths[-1]}",
    )
    yield (
        "class names defined in more than one module",
        str(sum(count > 1 for count in census.classes.values())),
    )
    folder, count = census.folders.most_common(1)[0]
    yield "most modules in one folder", f"{count} ({folder})"
    yield (
        "docstrings that begin with What or Whether",
        str(sum(text.lstrip().startswith(("What ", "Whether ")) for text in census.docstrings)),
    )
    yield (
        "dialect in docstrings (asked, told, words, nobody ...)",
        str(sum(len(DIALECT.findall(text)) for text in census.docstrings)),
    )
    yield "identifiers with words, asked, told, whoever", str(len(parts))


def main(arguments: Sequence[str]) -> int:
    """Print a Markdown table with a column for each tree."""
    trees = [Path(argument) for argument in arguments] or [Path()]
    columns = [dict(_rows(take_census(tree))) for tree in trees]
    print("| |", " | ".join(str(tree) for tree in trees), "|")
    print("|---|" + "---:|" * len(trees))
    for row in columns[0]:
        print(f"| {row} |", " | ".join(column[row] for column in columns), "|")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
