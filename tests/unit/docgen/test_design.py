"""docs/design.md names the code as it is: each arrow of the pipe a function, each noun a type, each folder a package."""

import ast
import functools
import importlib
import inspect
import pkgutil
import re

import pytest

from tests.support.paths import ROOT

SOURCE = ROOT / "src/kproxy"
PAGE = (ROOT / "docs/design.md").read_text(encoding="utf-8")
PIPE = PAGE.partition("## The pipe")[2].partition("##")[0]
ARROWS = re.findall(r"^\| (`.+`) \| `([\w.]+)` \| (.+) \|$", PIPE, re.MULTILINE)


def in_ticks(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


NOUNS = {noun for given, _, result in ARROWS for noun in in_ticks(given + result)} - {"bytes"}


@functools.cache
def defining_modules() -> dict[str, list[str]]:
    """Of each class, and each alias of a type, the modules that define it."""
    found: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            match node:
                case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(name)]):
                    found.setdefault(name, []).append(module)
                case _:
                    pass
    return found


def test_the_pipe_is_read_row_by_row() -> None:
    assert len(ARROWS) == len(re.findall(r"^\| `", PIPE, re.MULTILINE)) >= 10


@pytest.mark.parametrize("noun", sorted(NOUNS))
def test_a_noun_of_the_pipe_is_a_type_that_can_be_imported(noun: str) -> None:
    assert all(hasattr(importlib.import_module(module), noun) for module in defining_modules()[noun])


@pytest.mark.parametrize(("given", "path", "result"), ARROWS, ids=[path for _, path, _ in ARROWS])
def test_an_arrow_is_a_function_of_what_it_is_given_with_the_result_it_names(
    given: str, path: str, result: str
) -> None:
    annotations = inspect.get_annotations(pkgutil.resolve_name(f"kproxy.{path}"))
    returned = annotations.pop("return")
    taken = {noun for annotation in annotations.values() for noun in re.findall(r"\w+", annotation)}
    assert set(in_ticks(given)) <= taken
    if returned == "None":  # the result is an argument, changed
        assert in_ticks(result)[-1] in taken
    else:
        assert in_ticks(result)[0] in re.findall(r"\w+", returned)


def test_the_picture_names_what_the_rows_name() -> None:
    picture = re.search(r"```text\n(.+?)```", PIPE, re.DOTALL)
    assert picture
    nouns = set(re.findall(r"\b[A-Z]\w+", picture[1]))
    assert nouns <= NOUNS
    assert len(nouns) > 10


def test_the_folders_are_the_packages() -> None:
    tree = PAGE.partition("src/kproxy/\n")[2].partition("\ntests/")[0]
    above = ""
    found = []
    for indent, name in re.findall(r"^( +)([a-z_]+)/ ", tree, re.MULTILINE):
        above = above if len(indent) > 2 else name
        found.append(name if len(indent) == 2 else f"{above}/{name}")
    packages = {path.parent.relative_to(SOURCE) for path in SOURCE.rglob("__init__.py")}
    assert sorted(found) == sorted(str(package) for package in packages if 1 <= len(package.parts) <= 2)
