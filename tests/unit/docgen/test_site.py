"""The site has the pages of the repository, and README.md has commands that a visitor can type."""

import importlib
import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml

from kproxy import cli
from kproxy.conformance.case import Probe
from kproxy.conformance.generate.oracle_answers import with_oracle_answers
from kproxy.conformance.subjects.subject import subject_from_toml
from kproxy.model.network import Family
from tests.support.paths import ROOT
from tools.docgen import site

README = (ROOT / "README.md").read_text(encoding="utf-8")
INDEX = (ROOT / "docs/index.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def pages_of_the_navigation() -> set[str]:
    navigation = yaml.safe_load(CONFIGURATION.partition("\nnav:\n")[2])
    return set(re.findall(r"[\w/-]+\.md", str(navigation)))


def test_the_navigation_has_pages_that_exist_and_all_but_those_of_a_series() -> None:
    found = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    listed = pages_of_the_navigation()
    assert listed <= found | set(site.OUTSIDE.values())
    rest = {page.rpartition("/")[0] for page in found - listed}
    assert rest == {"adr", "spec/topics", "findings", "tutorials"}


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("docs/index.md", "[a](../CONTRIBUTING.md#style)", "[a](contributing.md#style)"),
        ("docs/spec/explain.md", "[a](../../src/kproxy/spec/oracle.py)", "a"),
        ("CONTRIBUTING.md", "[a](docs/design.md)", "[a](design.md)"),
        ("tests/README.md", "[a](../docs/lab.md)", "[a](lab.md)"),
        ("docs/adr/0010-x.md", "[a](../lab.md), [b](https://x.y/z)", "[a](../lab.md), [b](https://x.y/z)"),
    ],
)
def test_a_link_leads_to_a_page_of_the_site_or_is_text(path: str, text: str, expected: str) -> None:
    assert site.with_site_links(text, path) == expected


def test_the_index_has_an_entry_for_each_reader() -> None:
    assert len(re.findall(r"^## You ", INDEX, re.MULTILINE)) == 4


def test_the_readme_fits_a_screen() -> None:
    assert README.count("\n") <= 75


def test_the_folders_of_the_readme_are_those_of_the_package() -> None:
    table = README.partition("| Folders in `src/kproxy/` |")[2].partition("\n\n")[0]
    folders = set(re.findall(r"`(\w+)/`", table))
    assert folders == {path.parent.name for path in (ROOT / "src/kproxy").glob("*/__init__.py")}


def test_the_start_for_an_author_is_a_subject_file_and_a_command_that_can_be_used() -> None:
    found = re.search(r"<<'EOF'\n(.+?)EOF\nkproxy conformance run ([^\n]+)\n", README, re.DOTALL)
    assert found
    assert subject_from_toml(found[1], "README.md", "/bin/true").modes
    cli.build_parser().parse_args(["conformance", "run", *shlex.split(found[2])])


TESTS = (ROOT / "tests/README.md").read_text(encoding="utf-8")


def test_the_page_on_tests_has_every_session_and_leads_to_files_that_exist() -> None:
    table = TESTS.partition("| Session |")[2].partition("\n\n")[0]
    sessions = re.findall(
        r"^@nox\.session.*\ndef (\w+)", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == sorted(sessions)
    paths = re.findall(r"tests/[\w/.]+", TESTS)
    assert len(paths) >= 4
    assert [path for path in paths if not (ROOT / path.rstrip(".")).exists()] == []


def test_the_folders_of_tests_are_those_there_are() -> None:
    named = set(re.findall(r"`([a-z0-9]+)/`", TESTS.partition("## Where things are")[2]))
    folders = {
        path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert folders <= named


def test_the_python_interface_is_of_modules_that_exist_and_its_example_can_be_judged() -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    modules = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    assert len(modules) > 10
    assert all(importlib.import_module(module).__doc__ for module in modules)
    example = re.search(r"```python\n(.+?)```", page, re.DOTALL)
    assert example
    names: dict[str, Any] = {}
    exec(example[1], names)  # noqa: S102 - the page's own example
    answered = with_oracle_answers(replace(names["CASE"], families=(Family.IPV4,)))
    (probe,) = (step for step in answered.steps if isinstance(step, Probe))
    assert probe in names["CASE"].steps
    assert answered.clauses == names["CASE"].clauses
