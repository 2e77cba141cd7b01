"""Several runs by one command: where each goes, and one result of all."""

import asyncio
import io
import json
from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine import matrix, placement
from kproxy.conformance.engine.live_status import StatusBoard
from kproxy.conformance.engine.matrix import PlannedRun
from kproxy.conformance.options import RunOptions
from kproxy.conformance.reports.results import Report, Result, RunOutcome
from kproxy.conformance.subjects.subject import load_subject
from kproxy.console import Console
from kproxy.lab.kernels import uml
from kproxy.lab.kernels.abilities import Ability, KernelName, KernelSurvey
from kproxy.lab.kernels.choice import Surveyors
from tests.support.sample_reports import result

IPVS = {Ability.IP_VS, Ability.DUMMY}
CASES = [case for case in CATALOGUE if case.id.startswith("cluster-ip.")]


def survey(name: KernelName, lacks: set[Ability]) -> KernelSurvey:
    obstacles = {ability: "not here" if ability in lacks else "" for ability in Ability}
    return KernelSurvey(name=name, what=f"the {name.value}", obstacles=obstacles)


def kernels(**lacking: set[Ability]) -> Surveyors:
    known = {KernelName(name): survey(KernelName(name), lacks) for name, lacks in lacking.items()}
    return {name: lambda one=one: one for name, one in known.items()}  # type: ignore[misc]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without IPVS, and a guest with everything."""
    monkeypatch.setattr(placement, "surveyors", lambda *_: kernels(host=IPVS, uml=set()))


RUNS = [RunOptions(mode=mode, kernel="auto", evidence=Path("e")) for mode in ("iptables", "nftables", "ipvs")]


@pytest.mark.usefixtures("machine")
def test_each_run_goes_to_the_first_kernel_that_can_and_guests_are_a_lane_of_their_own() -> None:
    planned = matrix.plan_runs(RUNS, CASES)
    assert [(run.name, run.options.kernel, run.in_guests) for run in planned] == [
        ("iptables", "host", False),
        ("nftables", "host", False),
        ("ipvs", "uml", True),
    ]
    assert matrix.describe_placements(planned) == [
        "iptables, nftables: kernel: host (the host)",
        "ipvs: kernel: uml (the uml); host: no dummy, ip_vs",
        "ipvs takes minutes in a guest; `--kernel host --skip-missing-kernels` leaves it out",
    ]


def test_a_run_that_no_kernel_can_have_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "surveyors", lambda *_: kernels(host=IPVS))
    planned = matrix.plan_runs(RUNS, CASES)
    assert [bool(run.refusal) for run in planned] == [False, False, True]
    assert planned[2].refusal == "no kernel can run this: host: no dummy, ip_vs"


# ------------------------------------------------------------------------------ packages


@pytest.mark.parametrize(
    ("mode", "packages"), [("ipvs", {"user-mode-linux"}), ("nftables", set()), ("iptables", set())]
)
def test_the_packaged_guest_is_requested_where_it_helps(
    mode: str, packages: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel has IPVS and no nftables; here nothing has either."""
    monkeypatch.setattr(uml, "missing_packages", lambda *_: frozenset({"user-mode-linux"}))
    lacks = {*IPVS, Ability.NFTABLES, Ability.IPTABLES_NFT}
    options = RunOptions(mode=mode, kernel="auto")
    assert (
        placement.missing_kernel_packages(options, CASES, kernels(host=lacks, uml=set(Ability))) == packages
    )


def test_no_package_is_requested_a_mode_that_has_its_kernel_or_may_not_go_to_a_guest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uml, "missing_packages", lambda *_: frozenset({"user-mode-linux"}))
    options = RunOptions(mode="ipvs", kernel="auto")
    assert not placement.missing_kernel_packages(options, CASES, kernels(host=set(), uml=IPVS))
    assert not placement.missing_kernel_packages(options, CASES, kernels(host=IPVS))


# ------------------------------------------------------------------------------ one command


def simulate(*arguments: str) -> int:
    return main(["conformance", "run", "--testbed", "simulator", "--case", "cluster-ip.*", *arguments])


def test_without_a_mode_every_mode_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--json", str(tmp_path / "results.json")) == 0
    page = capsys.readouterr().out
    assert "kproxy: 4 runs, " in page
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [(run["name"], run["mode"]) for run in document["runs"]] == [
        (mode, mode) for mode in ("iptables", "nftables", "ipvs", "userspace")
    ]
    for run in document["runs"]:
        assert {"subject", "mode", "environment", "results"} <= run.keys()
        assert [entry["id"] for entry in run["results"]] == [case.id for case in CASES]


def test_a_run_is_reported_when_it_ends_and_not_with_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest takes minutes longer than the host's kernel."""
    host, guest = (PlannedRun(options=run, in_guests=run.mode == "ipvs") for run in (RUNS[0], RUNS[2]))
    printed = io.StringIO()

    async def outcome(_: object, run: PlannedRun) -> RunOutcome:
        if run is guest:
            for _ in range(100):
                await asyncio.sleep(0)
            assert "iptables: 1 passed" in printed.getvalue()
        report = Report(
            subject="kproxy",
            mode=run.options.mode,
            environment={},
            results=(result(Result.PASSED),),
            seconds=1.0,
        )
        return RunOutcome(name=run.name, report=report)

    monkeypatch.setattr(matrix._MatrixRunner, "_outcome", outcome)
    board = StatusBoard(Console(file=printed, width=200), None, [host.name, guest.name])
    outcomes = matrix.run_matrix([host, guest], load_subject("kproxy"), CASES, board)
    assert [outcome.name for outcome in outcomes] == ["iptables", "ipvs"]


def test_json_on_standard_output_is_nothing_but_json(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert simulate("--json", "-") == 0
    streams = capfdbinary.readouterr()
    assert json.loads(streams.out)["subject"] == "kproxy"
    assert b"4 runs" in streams.err


def test_a_subject_with_one_mode_is_one_run(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text('name = "kproxy"\nmodes = ["nftables"]\ncommand = ["true"]\n')
    arguments = ("--proxy", str(tmp_path / "one.toml"), "--json", str(tmp_path / "results.json"))
    assert simulate(*arguments) == 0
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert document["mode"] == "nftables"
    assert [entry["id"] for entry in document["results"]] == [case.id for case in CASES]
