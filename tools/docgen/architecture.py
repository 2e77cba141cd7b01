"""The table in docs/design.md of which package may import which, from the one that the architecture test holds.

Reads `tests/unit/repository/test_architecture.py` as text, since test modules are not imported.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tools.docgen.tables import markdown_table, replace_region

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests/unit/repository/test_architecture.py"

_Names = dict[str, tuple[str, ...]]


def page(path: Path = ROOT / "docs/design.md") -> str:
    """The page with the table as it is now."""
    return replace_region(path.read_text(encoding="utf-8"), "architecture", _table())


def _table() -> str:
    rows, pure = _definitions(SOURCE.read_text(encoding="utf-8"))
    cells = (
        (f"`{row}`", "pure" if row in pure else "", _list(may) or "nothing of kproxy")
        for row, may in rows.items()
    )
    return markdown_table("", ("Package or module", "", "May import"), cells).lstrip()


def _list(names: tuple[str, ...]) -> str:
    return " ".join(f"`{name}`" for name in names).replace("`model.network` `model.api`", "`model.*`")


def _definitions(source: str) -> tuple[_Names, tuple[str, ...]]:
    """The rows of ``MAY_IMPORT`` in their order, and ``PURE``."""
    known: _Names = {}
    rows: _Names = {}
    for node in ast.parse(source).body:
        match node:
            case ast.AnnAssign(target=ast.Name("MAY_IMPORT"), value=ast.Dict(keys=keys, values=values)):
                rows = {
                    str(ast.literal_eval(k)): _names(v, known) for k, v in zip(keys, values, strict=True) if k
                }
            case ast.Assign(targets=[ast.Name(name)], value=ast.Set() | ast.Tuple() | ast.BinOp() as value):
                known[name] = _names(value, known) if name.isupper() else ()
            case _:
                pass
    return rows, known["PURE"]


def _names(node: ast.expr, known: _Names) -> tuple[str, ...]:
    """The strings of a set, a tuple or a union of them, without repetition."""
    match node:
        case ast.Constant(value=str(name)):
            found = [name]
        case ast.Name(id=name):
            found = list(known[name])
        case ast.Set(elts=parts) | ast.Tuple(elts=parts):
            found = [name for part in parts for name in _names(part, known)]
        case ast.Starred(value=part):
            found = list(_names(part, known))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            found = [*_names(left, known), *_names(right, known)]
        case _:  # ``set()``, and tuples of modules that a comprehension makes
            found = []
    return tuple(dict.fromkeys(found))
