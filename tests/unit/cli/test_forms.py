"""``-o json|yaml`` and ``--output FILE`` of every command that prints data: one document, and lines on standard error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from kproxy.cli import main
from kproxy.lab.cluster.command import ClusterUpOptions, cluster_document
from kproxy.lab.cluster.layout import ClusterLayout
from kproxy.options.commands import COMMANDS, CommandHelp
from kproxy.options.option import OptionUser
from kproxy.options.table import options_of
from kproxy.universes import launch
from kproxy.universes.draw import draw_schedule
from kproxy.universes.launch import UniverseRun
from tests.support.paths import ROOT

OTHER_PROGRAMS = (
    OptionUser.LAB_EXEC
    | OptionUser.LAB_KUBECTL
    | OptionUser.LAB_CLUSTER_EXEC
    | OptionUser.LAB_CLUSTER_KUBECTL
)
"""They print what a program of the user's prints."""
PRINT_NOTHING = OptionUser.LAB_DOWN | OptionUser.LAB_CLUSTER_DOWN
SIMULATED = ("conformance", "fuzz", "--testbed", "simulator", "--worlds", "3", "--seed", "1", "--no-shrink")


def document(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], *arguments: str, status: int = 0
) -> dict[str, Any]:
    """The document that a command writes, as JSON to a file and as YAML to standard output, which are the same."""
    file = tmp_path / "document.json"
    assert main([*arguments, "-o", "json", "--output", str(file)]) == status
    printed = capfd.readouterr().out
    assert not printed or arguments[:2] == ("conformance", "report"), "its tables stay on the terminal"
    assert main([*arguments, "-o", "yaml"]) == status
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    assert yaml.safe_load(capfd.readouterr().out) == found
    return found


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_that_prints_data_has_a_form_and_a_file(command: CommandHelp) -> None:
    options = {option.name: option for option in options_of(command.user)}
    if command.user in OTHER_PROGRAMS | PRINT_NOTHING:
        assert "--format" not in options
        return
    assert "--output" in options
    if command.user is not OptionUser.COMPLETION:  # a program in the language of a shell
        assert {"text", "json", "yaml"} <= set(options["--format"].choices)


def test_judged_worlds_are_a_document(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = document(tmp_path, capfd, *SIMULATED, "--mode", "nftables")
    assert (found["subject"], found["mode"], found["seed"], found["worlds"]) == ("kproxy", "nftables", 1, 3)
    assert (found["counts"], found["failed"], found["broken"]) == ({"passed": 3}, [], {})


def test_differences_of_two_subjects_are_a_document(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """IPVS answers a Service without endpoints by itself, where the other modes leave the packet (both lawful)."""
    found = document(tmp_path, capfd, *SIMULATED, "--against", "kproxy", "--against-mode", "ipvs")
    assert found["subjects"] == ["kproxy (iptables)", "kproxy (ipvs)"]
    assert found["unlawful"] == 0
    assert {tuple(one["seen"]) for one in found["differences"]} == {("untouched", "rejected")}


def test_universes_are_a_document(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_universes(*_: object) -> Iterator[UniverseRun]:
        yield UniverseRun(number=0, schedule=draw_schedule(5), error="it ended too soon")

    monkeypatch.setattr(launch, "find_kernel", lambda _: None)
    monkeypatch.setattr(launch, "run_universes", broken_universes)
    found = document(tmp_path, capfd, "simulate", "--seeds", "5", "--mode", "nftables", status=2)
    assert (found["subject"], found["counts"]["universes"], found["counts"]["broken"]) == ("kproxy", 1, 1)
    (universe,) = found["universes"]
    assert (universe["seed"], universe["result"], universe["error"]) == (5, "broken", "it ended too soon")


def test_an_interrupted_campaign_prints_what_ended_before(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted_universes(*_: object) -> Iterator[UniverseRun]:
        yield UniverseRun(number=0, schedule=draw_schedule(5), error="it ended too soon")
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "find_kernel", lambda _: None)
    monkeypatch.setattr(launch, "run_universes", interrupted_universes)
    assert main(["simulate", "--seeds", "5..9", "--mode", "nftables"]) == 130
    assert "kproxy: interrupted after 1 universes" in capsys.readouterr().out


def test_a_comparison_of_results_is_a_document(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [str(ROOT / f"docs/results/{name}.json") for name in ("kproxy", "kube-router")]
    found = document(tmp_path, capfd, "conformance", "report", *files)
    assert {run["subject"] for run in found["runs"]} == {"kproxy", "kube-router"}
    names = {run["name"] for run in found["runs"]}
    assert found["differing"]
    assert all(len(set(one["results"].values())) > 1 for one in found["differing"])
    assert all(set(one["results"]) <= names for one in found["differing"])


@pytest.mark.parametrize(
    ("verb", "maker"),
    [("build", "kproxy.lab.kernels.command.build_uml_kernel"), ("fetch", "kproxy.lab.kernels.vm.fetch_vm_kernel")],
)  # fmt: skip
def test_a_kernel_that_was_made_is_a_document(
    verb: str,
    maker: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maker, lambda *_: Path("/cache/linux"))
    found = document(tmp_path, capfd, "lab", "kernel", verb)
    assert (found["schema"], found["kernel"]) == ("kproxy-lab-kernel/1", "/cache/linux")
    assert found["remark"]


def test_a_running_cluster_is_a_document(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path("/run/cluster/kubeconfig")
    monkeypatch.setattr("kproxy.lab.cluster.session.find_session", lambda _: SimpleNamespace(kubeconfig=path))
    found = document(tmp_path, capfd, "lab", "cluster", "kubeconfig", "--name", "mine")
    assert (found["name"], found["kubeconfig"]) == ("mine", str(path))
    options = ClusterUpOptions(nodes=2, assets=None, proxy="none", mode="", deploy=tmp_path, name="mine")
    layout = ClusterLayout(2)
    cluster: Any = SimpleNamespace(
        spec=SimpleNamespace(layout=layout), kubeconfig=path, nodes=("node-1", "node-2")
    )
    started = cluster_document(options, cluster)
    assert started["kubeconfig"] == found["kubeconfig"]
    assert all(len(addresses) == 2 for addresses in started["nodes"].values())  # type: ignore[attr-defined]


def test_a_completion_goes_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kproxy.bash"
    assert main(["completion", "bash", "--output", str(file)]) == 0
    assert capfd.readouterr().out == ""
    assert "complete" in file.read_text(encoding="utf-8")
