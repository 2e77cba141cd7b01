"""``kproxy conformance cluster`` before there is a cluster: arguments, and what is missing."""

import argparse
import re
import sys
from pathlib import Path

import pytest

from kproxy import cli
from kproxy.lab.apiserver import kubeconfig
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/kind.md").read_text(encoding="utf-8")
ARGUMENTS = ["conformance", "cluster", "--mode", "nftables", "--agent-image", "kproxy:1"]


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main([*ARGUMENTS, *arguments]) == 2
    return " ".join(capsys.readouterr().err.split())


def test_the_options_that_are_documented_are_those_there_are() -> None:
    (actions,) = (a for a in cli.build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    (names,) = (
        a for a in actions.choices["conformance"]._actions if isinstance(a, argparse._SubParsersAction)
    )
    there = {a.option_strings[-1] for a in names.choices["cluster"]._actions if a.help != argparse.SUPPRESS}
    section = PAGE.partition("## The catalogue in a cluster")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `--")]
    assert {flag for row in rows for flag in re.findall(r"`(--[a-z-]+)", row)} == there - {"--help"}


def test_without_a_kubeconfig_it_reports_what_to_give(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert f"kubeconfig {tmp_path}/none: No configuration" in (
        reported := error_of(capsys, "--kubeconfig", str(tmp_path / "none"))
    )
    assert "give --kubeconfig FILE" in reported


def test_a_context_that_is_not_there_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(kubeconfig("http://127.0.0.1:1"))
    reported = error_of(capsys, "--kubeconfig", str(file), "--context", "other")
    assert "other" in reported
    assert "--context NAME" in reported


def test_a_cluster_that_does_not_answer_is_reported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(kubeconfig("http://127.0.0.1:1"))
    assert "Connection refused" in error_of(capsys, "--kubeconfig", str(file))


def test_without_the_package_that_reads_kubeconfigs_it_reports_how_to_have_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    assert "pip install 'kube-kproxy[cluster]'" in error_of(capsys)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--case", "no-such.*"], "no case matches"),
        (["--client", "http://127.0.0.1:1"], "--client and --remote go together"),
        (["--client", "http://127.0.0.1:1", "--remote", "http://127.0.0.1:2"], "KPROXY_AGENT_KEY is not set"),
        (["--proxy", "kube-proxy", "--mode", "userspace"], "--mode userspace: kube-proxy has"),
        (["--json", "/nonexistent/folder/results.json"], "/nonexistent/folder"),
    ],
)
def test_what_cannot_be_meant_is_reported_before_a_cluster_is_queried(
    capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    assert why in error_of(capsys, *arguments)
