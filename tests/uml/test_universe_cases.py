"""A schedule that fails is shortened, and written as a conformance case too: it fails where the defect is, and passes without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.conformance.case import (
    Apply,
    CaseEndpoint,
    CaseService,
    Policy,
    SetZone,
    Target,
    TargetKind,
    Vantage,
    VantageKind,
)
from kproxy.model.network import Family
from kproxy.universes.command import run_simulate
from kproxy.universes.schedule import FaultKind, Schedule, TimedChange, TimedFault, TimedProbe
from kproxy.universes.schedule_files import load_schedule, schedule_source
from kproxy.universes.simulate_options import SimulateOptions

ROOT = Path(__file__).parents[2]
MUTANT = (ROOT / "tests" / "mutants" / "kproxy-mutant.toml").read_text()
DEFECT = "policy.internal-ignored"
SEED = 1
WEB = CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),), internal_policy=Policy.LOCAL)
POD = Vantage(VantageKind.POD, "a", "a2")
SCHEDULE = Schedule(
    seed=SEED,
    family=Family.IPV4,
    changes=(
        TimedChange(at=0.0, step=Apply(CaseService(name="api", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=10.0, step=Apply(WEB)),
        TimedChange(at=40.0, step=SetZone("a", "zone-b")),
    ),
    faults=(TimedFault(at=12.0, seconds=4.0, kind=FaultKind.PROXY_STOPPED, node="b"),),
    probes=tuple(
        TimedProbe(at=at, sender=POD, to=Target(TargetKind.CLUSTER_IP, name))
        for at, name in ((30.0, "web"), (31.0, "api"), (50.0, "web"), (51.0, "api"))
    ),
)
"""A Service has internal policy Local and its only endpoint on the other node; nothing else matters."""


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Subject file of kproxy with the defect, for guests as well."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
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
            seeds=range(0),
            length=None,
            replay=directory.parent / "schedule.py",
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


def test_the_case_of_a_schedule_fails_with_the_defect_and_passes_without(
    subject: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "schedule.py").write_text(schedule_source(SCHEDULE, "A schedule."))
    assert simulate(str(subject), tmp_path / "out") == 1
    small = load_schedule(tmp_path / "out" / f"defective-nftables-{SEED}.py")
    assert ([change.step for change in small.changes], len(small.probes), small.faults) == (
        [Apply(WEB)],
        1,
        (),
    )
    case = tmp_path / "out" / f"defective-nftables-{SEED}-case.py"
    assert f"its case, which fails too: {case}" in capsys.readouterr().out
    assert judge(str(subject), case) == 1
    assert judge("kproxy", case) == 0
