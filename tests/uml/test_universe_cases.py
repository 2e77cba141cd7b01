"""A seed that fails is shortened, and written as a conformance case too: it fails where the defect is, and passes without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.universes import command
from kproxy.universes.command import SimulateOptions, run_simulate

ROOT = Path(__file__).parents[2]
MUTANT = (ROOT / "tests" / "mutants" / "kproxy-mutant.toml").read_text()
DEFECT = "policy.internal-ignored"
SEED = 1
"""Seed in which a Service has internal policy Local and its only endpoint on the other node."""


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Subject file of kproxy with the defect, for guests as well."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    monkeypatch.setattr(command, "SHRINKING_SECONDS", 20.0)
    path = tmp_path / "defective.toml"
    path.write_text(MUTANT.replace("{binary}", DEFECT).replace("kproxy-mutant", "defective"))
    return path


def simulate(proxy: str, directory: Path) -> int:
    return run_simulate(
        SimulateOptions(
            proxy=proxy,
            binary="",
            mode="nftables",
            iptables="auto",
            other_proxy="",
            other_binary="",
            seeds=range(SEED, SEED + 1),
            replay=None,
            results=None,
            until=None,
            commands=(),
            shell=False,
            parallel=2,
            shrink=True,
            directory=directory,
            uml_kernel="",
        )
    )


def judge(proxy: str, case: Path) -> int:
    options = ("--proxy", proxy, "--mode", "nftables", "--case-file", str(case))
    where = ("--kernel", "uml", "--time", "virtual", "--evidence", str(case.parent / "evidence"))
    line = (sys.executable, "-m", "kproxy", "conformance", "run", *options, *where)
    return subprocess.run(line, check=False, capture_output=True).returncode


def test_the_case_of_a_seed_fails_with_the_defect_and_passes_without(
    subject: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(str(subject), tmp_path / "out") == 1
    case = tmp_path / "out" / f"defective-nftables-{SEED}-case.py"
    assert f"its case, which fails too: {case}" in capsys.readouterr().out
    assert judge(str(subject), case) == 1
    assert judge("kproxy", case) == 0
