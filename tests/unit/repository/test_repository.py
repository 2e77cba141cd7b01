"""The repository keeps its own promises: commands, links and files that the documents name are there."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.paths import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changelog.d").glob("*.md")])
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
REUSABLE = ROOT / ".github/workflows/judge.yml"
SITE = ROOT / ".github/workflows/site.yml"
RELEASE = ROOT / ".github/workflows/release.yml"
UPLOADS = {
    "publish": {"contents": "write"},
    "package": {"contents": "read", "id-token": "write", "attestations": "write"},
    "files": {"contents": "write", "actions": "read"},
    "image": {"contents": "read", "packages": "write", "id-token": "write"},
}
"""What the jobs of a release may do: to be trusted by PyPI and cosign, to make the release, and to upload the image; and of the site, to publish it."""
"""For other repositories: it judges what they build, by ``action.yml``."""
DECISIONS = sorted((ROOT / "docs/adr").glob("*.md"))
FRAGMENTS = sorted(path for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md")

FRAGMENT_NAME = r"(\d+|\+[a-z0-9-]+)\.(behaviour|feature|fix|internal)\.md"
DOORS = r"(\./run|\.ci/run|nox)( .*)?"
DECISION_PARTS = ("Context", "Decision", "Consequence", "What would change our mind")


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "run"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def commands_of_run() -> set[str]:
    return set(re.findall(r"^\./run (\w+)", run("help").stdout, re.MULTILINE))


def sessions() -> set[str]:
    return {
        node.name
        for node in ast.parse(text(ROOT / "noxfile.py")).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    }


def mentions(pattern: str) -> Iterator[tuple[str, str]]:
    """(file, word) wherever a document or a workflow has it."""
    for path in [*DOCUMENTS, *WORKFLOWS]:
        for word in re.findall(pattern, text(path)):
            yield path.name, word


def test_every_run_command_that_is_written_about_exists() -> None:
    mentioned = set(mentions(r"\./run ([a-z]+)"))
    assert {"conformance", "tests"} <= {word for name, word in mentioned if name == "README.md"}
    wrong = {(name, word) for name, word in mentioned if word not in commands_of_run()}
    assert not wrong


def test_every_session_that_is_written_about_exists() -> None:
    mentioned = {
        word
        for _, line in mentions(r"(?:run tests|ci/run|nox -s)((?: [a-z][a-z0-9]*)+)")
        for word in line.split()
    }
    assert mentioned, "the documents name no session at all: is the pattern still right?"
    assert mentioned <= sessions()


def test_run_tests_runs_sessions_that_exist() -> None:
    line = re.search(r"set -- ([a-z ]+) \"\$@\"", text(ROOT / "run"))
    assert line
    assert line[1].split() == ["lint", "types", "unit", "netns", "conformance", "ipvs", "budgets"]
    assert set(line[1].split()) <= sessions()


def test_costly_sessions_are_not_run_by_plain_nox() -> None:
    tree = ast.parse(text(ROOT / "noxfile.py"))
    default = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and node.decorator_list
        and "default=False" not in ast.unparse(node)
    }
    assert default == {"lint", "types", "unit"}


def test_a_session_runs_modules_and_folders_that_exist() -> None:
    named = re.findall(r'"-m", "([\w.]+)"|"pytest", "([\w/]+)"', text(ROOT / "noxfile.py"))
    assert named
    places = [module.replace(".", "/") or folder for module, folder in named]
    assert [
        place for place in places if not ((ROOT / place).is_dir() or (ROOT / f"{place}.py").exists())
    ] == []


@pytest.mark.parametrize("script", ["run", ".ci/run"])
def test_the_scripts_are_executable_and_parse(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    checked = subprocess.run(["bash", "-n", ROOT / script], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_ci_runs_what_a_person_runs() -> None:
    assert re.search(r"^exec \./run tests \"\$@\"", text(ROOT / ".ci/run"), re.MULTILINE)


def test_run_explains_itself_and_a_wrong_word_is_status_2() -> None:
    assert run("help").returncode == 0
    wrong = run("no-such-command")
    assert wrong.returncode == 2
    assert "no-such-command" in wrong.stderr
    assert "./run conformance" in wrong.stderr


def run_on_a_bare_machine(
    place: Path, user: int, command: str = "conformance", **environment: str
) -> subprocess.CompletedProcess[str]:
    """`./run` in a folder of its own, where nothing is on PATH but what the script opens with."""
    for name in ("readlink", "dirname"):
        (place / name).symlink_to(Path("/usr/bin") / name)
    (place / "id").write_text(f"#!/bin/sh\necho {user}\n", encoding="utf-8")
    (place / "id").chmod(0o755)
    (place / "run").write_text(text(ROOT / "run").replace(":/usr/sbin:/sbin", ""), encoding="utf-8")
    return subprocess.run(
        ["/usr/bin/bash", place / "run", command],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={"PATH": str(place), **environment},
    )


def test_a_missing_tool_is_status_2_and_the_line_to_type(tmp_path: Path) -> None:
    refused = run_on_a_bare_machine(tmp_path, user=0, KPROXY_NO_INSTALL="1")
    assert refused.returncode == 2
    assert (
        "apt-get install -y --no-install-recommends iptables nftables ipset conntrack iproute2"
        in refused.stderr
    )


def test_without_root_or_sudo_it_reports_how_to_get_it(tmp_path: Path) -> None:
    refused = run_on_a_bare_machine(tmp_path, user=1000, command="mutants")
    assert refused.returncode == 2
    assert f"su -c '{tmp_path}/run mutants'" in refused.stderr


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(path: Path) -> None:
    targets = [
        t for t in re.findall(r"\]\(([^)]+)\)", text(path)) if "://" not in t and not t.startswith("#")
    ]
    broken = [target for target in targets if not (path.parent / target.partition("#")[0]).exists()]
    assert not broken


def test_a_decision_has_a_number_of_its_own() -> None:
    assert DECISIONS
    assert all(re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name) for path in DECISIONS)
    numbers = [path.name[:4] for path in DECISIONS]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.name)
def test_a_decision_has_its_reason_and_what_would_change_it(path: Path) -> None:
    headings = re.findall(r"^## (.+)$", text(path), re.MULTILINE)
    assert tuple(headings) == DECISION_PARTS
    assert re.match(rf"# {int(path.name[:4])}\. ", text(path))


def test_every_runtime_dependency_is_argued() -> None:
    declared = re.search(
        r"^dependencies = \[(.*?)^\]", text(ROOT / "pyproject.toml"), re.MULTILINE | re.DOTALL
    )
    assert declared
    names = re.findall(r'^ +"([a-z0-9_-]+)', declared[1], re.MULTILINE)
    argued = text(ROOT / "docs/adr/0004-runtime-dependencies.md").lower()
    assert names
    assert [name for name in names if f"| {name} |" not in argued] == []


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.name)
def test_a_changelog_fragment_has_a_known_type(path: Path) -> None:
    assert re.fullmatch(FRAGMENT_NAME, path.name)
    assert text(path).strip()


@pytest.mark.parametrize(
    "path", [p for p in WORKFLOWS if p not in {REUSABLE, RELEASE, SITE}], ids=lambda path: path.name
)
def test_a_workflow_calls_only_what_a_person_can_call(path: Path) -> None:
    steps = [step for job in yaml.safe_load(text(path))["jobs"].values() for step in job["steps"]]
    lines = [line for step in steps for line in step.get("run", "").splitlines()]
    assert lines
    assert [line for line in lines if not re.fullmatch(DOORS, line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_do_little_and_pins_what_it_uses(path: Path) -> None:
    workflow = yaml.safe_load(text(path))
    assert workflow["permissions"] == {}
    assert workflow["concurrency"]["cancel-in-progress"] == (path != RELEASE)
    permissions = {name: job["permissions"] for name, job in workflow["jobs"].items()}
    little = {"contents": "read"}
    assert permissions == {
        name: UPLOADS.get(name, little) if path in {RELEASE, SITE} else little for name in permissions
    }
    used = [
        line for line in re.findall(r"^ +-? *uses: (.+)", text(path), re.MULTILINE) if line != "./.kproxy"
    ]
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_every_switched_off_rule_gives_its_reason() -> None:
    lint = (
        text(ROOT / "pyproject.toml").partition("[tool.ruff.lint]")[2].partition("[tool.ruff.lint.mccabe]")[0]
    )
    rules = [line for line in lint.splitlines() if re.search(r'"[A-Z]+[0-9]*"', line) and "ALL" not in line]
    assert rules
    assert [line for line in rules if "#" not in line] == []


def test_the_action_hands_on_what_it_is_given_and_reports_options_that_exist() -> None:
    action = yaml.safe_load(text(ROOT / "action.yml"))
    steps = action["runs"]["steps"]
    given = {name for step in steps for name in re.findall(r"inputs\.(\w+)", str(step))}
    assert given == action["inputs"].keys()
    workflow = yaml.safe_load(text(REUSABLE))
    (use,) = (step for step in workflow["jobs"]["judge"]["steps"] if step.get("uses") == "./.kproxy")
    assert use["with"].keys() <= action["inputs"].keys()
    script = "\n".join(step["run"] for step in steps)
    known = subprocess.run(
        [sys.executable, "-m", "kproxy", "conformance", "run", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    mentioned = re.findall(r"[( ](--[a-z-]+)", script.partition("mkdir -p")[2])
    assert len(mentioned) > 8
    assert set(mentioned) <= set(re.findall(r"--[a-z-]+", known.stdout))
    for step in steps:
        checked = subprocess.run(
            ["bash", "-n"], input=step["run"], text=True, capture_output=True, check=False
        )
        assert checked.stderr == ""
        assert "${{" not in step["run"], "an input in a script is a program: hand it on by env"


def test_ci_runs_all_that_tests_run_by_themselves() -> None:
    lists = [
        re.findall(r"set -- ((?:[a-z]+ ?)+)", text(ROOT / door).replace(' "$@"', ""))
        for door in ("run", ".ci/run")
    ]
    by_themselves, in_ci = (
        {word for command_arguments in found for word in command_arguments.split()} for found in lists
    )
    assert by_themselves >= {"lint", "types", "unit", "netns", "conformance", "ipvs"}
    assert in_ci > by_themselves
