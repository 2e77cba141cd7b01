"""The pages on conformance describe what the program does: options, results, placeholders, the catalogue."""

import argparse
import fnmatch
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kproxy import cli
from kproxy.conformance.case import Feature, delivered_to
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.command import select_cases
from kproxy.conformance.engine.runner import sample_size
from kproxy.conformance.reports.results import Result
from kproxy.conformance.subjects.expected_failures import parse_xfails
from kproxy.conformance.subjects.subject import PLACEHOLDERS, subject_from_toml
from kproxy.spec.clauses import CLAUSES
from tests.support.paths import ROOT
from tests.support.scripted_testbed import TO_WEB
from tools.docgen import generate, tables

DOCS = ROOT / "docs"
HELP = "show this help message and exit"
PAGE = (DOCS / "conformance.md").read_text(encoding="utf-8")
SUBJECTS = (DOCS / "subjects.md").read_text(encoding="utf-8")


def first_cells(column: str, text: str = PAGE) -> list[str]:
    """The first tokens of the rows of the table whose first column has that heading."""
    _, _, table = text.partition(f"\n| {column} |")
    return re.findall(r"^\| `(?:-\w, )?([^` ]+)", table.partition("\n\n")[0], re.MULTILINE)


def options_of(*path: str) -> Iterator[str]:
    parser = cli.build_parser()
    for word in path:
        (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = commands.choices[word]
    return (a.option_strings[-1] for a in parser._actions if a.help not in {argparse.SUPPRESS, HELP})


@pytest.mark.parametrize("path", generate.PAGES, ids=lambda path: path.name)
def test_what_is_generated_is_fresh(path: Path) -> None:
    fresh = path.exists() and path.read_text(encoding="utf-8") == generate.PAGES[path]()
    assert fresh, f"{path.name} is stale: run `{tables.COMMAND}` and commit what it writes"


def test_the_catalogue_page_has_every_case_and_every_clause_once() -> None:
    page = generate.catalogue_page(CATALOGUE, CLAUSES)
    cases, _, clauses = page.partition("\n# Clauses\n")
    assert sorted(re.findall(r"^\| `([^`]+)`", cases, re.MULTILINE)) == sorted(c.id for c in CATALOGUE)
    assert sorted(re.findall(r'^\| <a name="([^"]+)"', clauses, re.MULTILINE)) == sorted(CLAUSES)


def test_every_link_within_the_catalogue_page_leads_somewhere() -> None:
    page = generate.catalogue_page(CATALOGUE, CLAUSES)
    headings = {line.lower().replace(" ", "-") for line in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    anchors = headings | set(re.findall(r'<a name="([^"]+)"', page))
    links = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert links
    assert links <= anchors


def test_a_kind_of_link_without_a_name_is_reported() -> None:
    with pytest.raises(LookupError, match=r"https://example\.com/x"):
        tables.link_label("https://example.com/x")


def test_the_check_finds_a_stale_page_and_writing_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "DOCS", tmp_path)
    monkeypatch.setattr(generate, "PAGES", {tmp_path / "page.md": lambda: "text"})
    assert generate.main(["--check"]) == 1
    assert tables.COMMAND in capsys.readouterr().err
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


def test_the_options_that_are_documented_are_those_there_are() -> None:
    assert sorted(first_cells("option")) == sorted(options_of("conformance", "run"))
    assert set(options_of("conformance", "list")) == {
        "--case",
        "--skip",
        "--regression",
        "--format",
        "--output",
    }


def test_the_results_that_are_documented_are_those_there_are() -> None:
    assert first_cells("result") == [kind.value for kind in Result]


def test_the_placeholders_that_are_documented_are_those_there_are() -> None:
    assert first_cells("placeholder", SUBJECTS) == [f"{{{name}}}" for name in PLACEHOLDERS]


def test_the_features_that_are_documented_are_those_there_are() -> None:
    (line,) = re.findall(r"^Features: (.+?)\.$", SUBJECTS, re.MULTILINE | re.DOTALL)
    assert re.findall(r"`(\w+)`", line) == [feature.value for feature in Feature]


def test_the_examples_of_subject_files_can_be_used() -> None:
    one, several = (
        subject_from_toml(example, "docs/subjects.md", "/bin/true")
        for example in re.findall(r"```toml\n(.+?)```", SUBJECTS, re.DOTALL)
    )
    assert one.deviations
    assert one.files
    assert one.environment
    assert one.mounts
    assert [bool(program.ready) for program in several.all_processes] == [True, False]


def test_the_example_of_expected_failures_can_be_used() -> None:
    (example,) = re.findall(r"```text\n(# GLOB.+?)```", SUBJECTS, re.DOTALL)
    assert len(parse_xfails(example, "docs/subjects.md")) == 2


def test_the_sample_sizes_that_are_documented_are_those_of_the_runner() -> None:
    documented = re.findall(r"\((\d+)(?: connections)? for two\s+endpoints,\s+(\d+) for six\)", PAGE)
    names = ("a1", "a2", "a3", "b1", "b2", "b3")
    plain = [replace(TO_WEB, expect=delivered_to(*names[:ways])) for ways in (2, 6)]
    spread = tuple(str(sample_size(replace(probe, spread=True))) for probe in plain)
    even = tuple(str(sample_size(replace(probe, even=True))) for probe in plain)
    assert documented == [spread, even]


TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))


def commands(path: Path) -> list[list[str]]:
    """Command lines of ours on a page."""
    lines = re.findall(
        r"^\$ (?:sudo )?(?:\"\$\(command -v )?(kproxy(?:\)\")? (?:conformance|spec) [^|<>&\n]+)$",
        path.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return [shlex.split(line.replace(')"', "", 1), comments=True)[1:] for line in lines]


def test_the_tutorials_have_commands() -> None:
    assert sum(len(commands(path)) for path in TUTORIALS) > 10


SUDO = """#!/bin/sh
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""
"""What sudo does to the search path (secure_path): a program of a virtual environment is not found by its name."""
NOT_FOUND = {126, 127}
"""Exit statuses of a shell for a program that it does not find, or may not run."""


def typed_as_root(line: str, place: Path) -> int:
    """Exit status of a line of a shell in whose environment ours is active, with `--help` at its end."""
    (place / "sudo").write_text(SUDO)
    (place / "sudo").chmod(0o755)
    path = f"{place}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"{line} --help"], env=os.environ | {"PATH": path}, capture_output=True, check=False
    )
    return done.returncode


def test_what_the_tutorials_type_as_root_is_found_in_a_virtual_environment(tmp_path: Path) -> None:
    lines = [
        line.removeprefix("$ ")
        for path in TUTORIALS
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("$ sudo ")
    ]
    assert len(lines) >= 5
    assert [line for line in lines if typed_as_root(line, tmp_path) in NOT_FOUND] == []
    assert typed_as_root("sudo kproxy conformance run", tmp_path) in NOT_FOUND


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.name)
def test_a_command_of_a_tutorial_is_one_that_exists(path: Path) -> None:
    for arguments in commands(path):
        cli.build_parser().parse_args(arguments)


def runs(path: Path) -> Iterator[tuple[list[str], str]]:
    """Runs of the catalogue's cases on a page, and the text up to the end of each block."""
    text = path.read_text(encoding="utf-8")
    for line, printed in re.findall(
        r"^\$ .*?kproxy(?:\)\")? (conformance run .+)\n((?:(?!```|\$ ).*\n)*)", text, re.MULTILINE
    ):
        if "--case " in line:
            yield shlex.split(line), printed


def test_the_tutorials_run_parts_of_the_catalogue() -> None:
    sums = [re.findall(r"cases: .* in", printed) for path in TUTORIALS for _, printed in runs(path)]
    assert sum(map(len, sums)) >= 2


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.name)
def test_a_part_that_a_tutorial_runs_is_as_large_as_it_was(path: Path) -> None:
    """Else its output is of another catalogue: walk it again."""
    for arguments, printed in runs(path):
        globs = cli.build_parser().parse_args(arguments).globs
        for number, kinds in re.findall(r"^\S+ \(\w+\): (\d+) cases: (.*) in", printed, re.MULTILINE):
            assert sum(map(int, re.findall(r"\d+", kinds))) == int(number)
            known = [glob for glob in globs if any(fnmatch.fnmatchcase(case.id, glob) for case in CATALOGUE)]
            assert not known or len(select_cases(known, slow=False)) == int(number), arguments
