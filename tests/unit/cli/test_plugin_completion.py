"""Completion as a user meets it: of ``kubectl kproxy`` by cobra's protocol, and of ``kproxy`` in bash at a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from kproxy.cli.plugin_completion import FILES, FOLDERS, NO_FILES, candidates
from kproxy.conformance.cases import CATALOGUE
from kproxy.spec.clauses import CLAUSES
from tests.support.paths import ROOT

CASE = "cluster-ip.slices-are-merged"
CLAUSE = "cluster-ip.undefined-protocol.not-served"


@pytest.mark.parametrize(
    ("tokens", "offered", "directive"),
    [
        ([""], {"explain", "compare", "trace", "lab"}, NO_FILES),
        (["ex"], {"explain"}, NO_FILES),
        (["--context", "mine", "tr"], {"trace"}, NO_FILES),
        (["--context=mine", "lab", ""], {"up", "exec", "kubectl", "down"}, NO_FILES),
        (["explain", "--fr"], {"--from"}, NO_FILES),
        (["explain", "--kube"], {"--kubeconfig"}, NO_FILES),
        (["explain", "--mode", "n"], {"nftables"}, NO_FILES),
        (["explain", "--mode=ip"], {"--mode=iptables", "--mode=ipvs"}, NO_FILES),
        (["explain", "--file"], set(), NO_FILES),
        (["trace", "--no"], {"--node", "--node-address"}, NO_FILES),
        (["compare", "--binary", ""], set(), FILES),
        (["compare", "--export", ""], set(), FOLDERS),
        (["lab", "up", "--kernel", ""], {"auto", "host", "rootless"}, NO_FILES),
        (["lab", "up", "--fi"], set(), NO_FILES),
        (["lab", "exec", "pod/a", "--", "cu"], set(), FILES),
        (["nope", "--"], {"--context", "--kubeconfig", "--cluster", "--user"}, NO_FILES),
    ],
)
def test_a_line_of_kubectl_is_completed_by_the_parser(
    tokens: list[str], offered: set[str], directive: int
) -> None:
    found, given = candidates(tokens)
    assert ({value for value, _ in found}, given) == (offered, directive)


def test_the_program_prints_candidates_with_descriptions_and_then_the_directive() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kproxy.cli.plugin_completion", "explain", "--fr"],
        capture_output=True,
        text=True,
        check=True,
    )
    first, last = done.stdout.splitlines()
    assert first.startswith("--from\tthe sender: ")
    assert last == ":4"
    assert done.stderr == ""


def test_the_package_installs_the_program_that_kubectl_looks_for() -> None:
    """kubectl_complete-NAME, with the dashes of NAME as underscores."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl_complete-kproxy"] == "kproxy.cli.plugin_completion:complete"


# ------------------------------------------------------------------------------ bash at a terminal


def typed_in_bash(place: Path, line: str, until: str, seconds: float = 60.0) -> str:
    """The terminal's contents after a line with tabs was typed into bash, once they have a text."""
    program = place / "kproxy"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kproxy "$@"\n')
    program.chmod(0o755)
    start = place / "start"
    start.write_text('PS1="at-the-prompt "\nsource <(kproxy completion bash)\n')
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"PATH": f"{place}:{os.environ['PATH']}", "TERM": "dumb"}
        os.execvp("bash", ["bash", "--noprofile", "--rcfile", str(start), "-i"])  # noqa: S606 (bash is what is tested)
    try:
        shown = read_until(terminal, "at-the-prompt", seconds)
        os.write(terminal, line.encode())
        return shown + read_until(terminal, until, seconds)
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def read_until(terminal: int, text: str, seconds: float) -> str:
    shown, deadline = "", time.monotonic() + seconds
    while text not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("kproxy conformance ru\t--maxf\t", "kproxy conformance run --maxfail"),
        (f"kproxy conformance show {CASE[:-4]}\t", f"kproxy conformance show {CASE}"),
        (f"kproxy conformance run --case {CASE[:-4]}\t", f"kproxy conformance run --case {CASE}"),
        (f"kproxy spec show {CLAUSE[:-4]}\t", f"kproxy spec show {CLAUSE}"),
        ("kproxy spec show source-r\t", "kproxy spec show source-ranges"),
    ],
)
def test_bash_completes_commands_options_cases_and_clauses(line: str, completed: str, tmp_path: Path) -> None:
    assert [case.id for case in CATALOGUE if case.id.startswith(CASE[:-4])] == [CASE]
    assert [clause for clause in CLAUSES if clause.startswith(CLAUSE[:-4])] == [CLAUSE]
    assert completed in typed_in_bash(tmp_path, line, completed)
