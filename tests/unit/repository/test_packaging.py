"""What PyPI shows of the distribution: its name, its links, its classifiers; hints name the distribution, not the command."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tools.packaging import find_repository, project_urls, with_absolute_links

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = "https://github.com/some/one"
WRITTEN = [
    path
    for folder in ("src", "docs", "tests", "images", "tools", ".github", ".ci")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".md", ".yml", ".yaml", ".toml"} and path != Path(__file__)
]


def test_hints_install_the_distribution_and_not_the_other_project_of_the_commands_name() -> None:
    named = {
        (path.name, line)
        for path in [*WRITTEN, *ROOT.glob("*.md"), ROOT / "action.yml", ROOT / "run"]
        for line in re.findall(r"pipx? install [^\n`;]*", path.read_text(encoding="utf-8"))
    }
    assert any("kube-kproxy" in line for _, line in named)
    wrong = re.compile(r"(?<![\w/-])kproxy(?:\[|\b(?!/|-))")
    assert {(name, line) for name, line in named if wrong.search(line)} == set()


def test_the_pattern_above_sees_the_wrong_name() -> None:
    wrong = re.compile(r"(?<![\w/-])kproxy(?:\[|\b(?!/|-))")
    assert wrong.search("pip install 'kproxy[cluster]'")
    assert wrong.search("pipx install kproxy")
    assert not wrong.search("pip install ./kproxy")


def test_the_metadata_is_complete() -> None:
    assert PROJECT["name"] == "kube-kproxy"
    kinds = set(PROJECT["classifiers"])
    assert {"Framework :: Pytest", "Typing :: Typed"} <= kinds
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    tested = re.findall(r'"(3\.\d+)"', workflow)
    assert tested == [kind[-4:] for kind in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", kind)]
    assert (ROOT / "src/kproxy/py.typed").exists()


@pytest.mark.parametrize(
    ("origin", "environment", "expected"),
    [
        ("", {}, ""),
        ("", {"GITHUB_REPOSITORY": "a/b"}, "https://github.com/a/b"),
        ("", {"GITHUB_REPOSITORY": "a/b", "GITHUB_SERVER_URL": "https://x.org"}, "https://x.org/a/b"),
        ("git@x.org:a/b.git", {}, "https://x.org/a/b"),
        ("https://x.org/a/b", {}, "https://x.org/a/b"),
        ("/some/folder", {}, ""),
    ],
)
def test_links_are_those_of_the_repository_that_builds(
    origin: str, environment: dict[str, str], expected: str, tmp_path: Path
) -> None:
    if origin:
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
        subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", origin], check=True)
    assert find_repository(tmp_path, environment) == expected


def test_every_link_of_the_readme_is_absolute_where_pypi_shows_it() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](docs/" in readme
    shown = with_absolute_links(f"{readme}\n![a](docs/images/x.png) [![b](c.svg)](d.md) [e](#f)", REPOSITORY)
    targets = re.findall(r"\]\(([^)]+)\)", shown)
    assert f"{REPOSITORY}/blob/main/docs/design.md" in targets
    assert f"{REPOSITORY}/raw/main/docs/images/x.png" in targets
    assert [target for target in targets if not re.match(r"https://|#", target)] == []


def test_the_links_lead_to_files_that_are_there() -> None:
    for url in project_urls(REPOSITORY).values():
        path = url.removeprefix(REPOSITORY).removeprefix("/blob/main/")
        assert not path or path == "/issues" or (ROOT / path).is_file()
