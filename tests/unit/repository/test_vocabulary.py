"""One noun is defined once, and identifiers speak the field's language."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

SOURCE = ROOT / "src/kproxy"

SPEECH = {
    *("ask", "asks", "asking", "asked", "tell", "tells", "telling", "told"),
    *("say", "says", "said", "saying", "hear", "hears", "heard", "words", "whoever"),
}
"""No part of a name, and in tests, tools and images in no text: a client sends, a program reports, a test observes."""

QUOTING = {
    "tests/unit/repository/test_vocabulary.py": "lists them",
    "tests/unit/docgen/test_prose.py": "lists those that pages must not have",
    "tools/census.py": "counts them",
    "tests/unit/conformance/reports/test_profiles.py": "compares with a message of `kproxy conformance verify`",
}
"""Files with a forbidden term in a text, each with the reason."""

RIDDLES = {"What", "Whether"}
"""First tokens that put a question in the place of the thing: "What the kernel lists" for "Addresses of the node"."""


def definitions() -> dict[str, list[str]]:
    """Public classes and functions at the top of modules: where each name is defined."""
    found = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(
                node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            ) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(SOURCE).with_suffix("").as_posix())
    return found


def siblings(modules: list[str]) -> bool:
    """True if each module is of another backend, or each of another testbed: there the same name is the same role."""
    return any(
        all(module.startswith(above) for module in modules)
        and len({module.removeprefix(above).split("/")[0] for module in modules}) == len(modules)
        for above in ("proxy/backends/", "conformance/testbeds/")
    )


def duplicates() -> dict[str, list[str]]:
    return {
        name: modules for name, modules in definitions().items() if len(modules) > 1 and not siblings(modules)
    }


def identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        for field in ("id", "name", "attr", "arg", "asname", "rest"):
            if isinstance(name := getattr(node, field, None), str):
                yield from name.split(".")


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Texts that stand alone as statements: of modules, classes, functions, and below assignments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield text


def riddles() -> dict[str, list[str]]:
    """Docstrings by module that begin with a question."""
    found = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for text in docstrings(ast.parse(path.read_text(encoding="utf-8"))):
            if text.split(maxsplit=1)[0] in RIDDLES:
                found[path.relative_to(SOURCE).as_posix()].append(text.splitlines()[0])
    return found


def beside_source() -> list[Path]:
    folders = [path for folder in ("tests", "tools", "images") for path in (ROOT / folder).rglob("*.py")]
    return sorted([*folders, ROOT / "noxfile.py"])


def spoken(text: str) -> set[str]:
    """Forbidden terms in a text; parts of an ID or of a path do not count."""
    alternatives = "|".join(sorted(SPEECH))
    return set(re.findall(rf"(?<![\w./-])(?:{alternatives})(?![\w-])", text, re.IGNORECASE))


def parts(name: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def test_a_noun_is_defined_once() -> None:
    found = duplicates()
    assert not found, f"{found}: give all but one a more precise name"


def test_identifiers_speak_the_fields_language() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*SOURCE.rglob("*.py"), *(ROOT / "docs").glob("*.py"), *beside_source()]
        for name in set(identifiers(ast.parse(path.read_text(encoding="utf-8"))))
        if parts(name) & SPEECH
    }
    assert not found, f"{sorted(found)}: send, query, observe, report, parse; arguments, tokens, text"


def test_texts_of_tests_tools_and_images_speak_the_fields_language() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): terms
        for path in beside_source()
        if (terms := spoken(path.read_text(encoding="utf-8")))
    }
    wrong = {name: terms for name, terms in found.items() if name not in QUOTING}
    assert not wrong, f"{wrong}: send, query, observe, report, parse; arguments, tokens, text"
    assert found.keys() == QUOTING.keys(), "an exception is no longer needed"


def test_a_docstring_begins_with_the_thing() -> None:
    found = riddles()
    assert not found, f"{found}: begin with the thing or the action, or with True if"


def test_parts_of_a_name_are_found_by_case_and_underscore() -> None:
    assert parts("_asked_at") & SPEECH
    assert parts("IptablesWords") & SPEECH
    assert parts("MOST_TOLD") & SPEECH
    assert not parts("Masked") & SPEECH
    assert not parts("keywords_foretold") & SPEECH


def test_terms_are_found_in_texts_but_not_in_ids_and_paths() -> None:
    assert spoken("The client asks. Told so.") == {"asks", "Told"}
    assert spoken('case(said, "x")') == {"said"}
    assert not spoken("health-check.local-endpoints.told node-port.localhost-serves-when-asked-to /proxy/ask")
    assert not spoken("task masked foretold keywords")
