"""The catalogue as pytest's items, by the plugin that an installed kproxy brings."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kproxy.conformance.cases import CATALOGUE

SIMULATED = ("--testbed", "simulator", "--mode", "nftables")


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_without_root_cases_are_collected_for_each_mode_by_group_and_feature(tmp_path: Path) -> None:
    arguments = ("--collect-only", "-q", "-m", "cluster-ip and not SCTP", "--proxy", "kube-proxy")
    done = run(tmp_path, "--pyargs", "kproxy.conformance", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    group = [case.id for case in CATALOGUE if case.id.startswith("cluster-ip.")]
    found = done.stdout.splitlines()
    for mode in ("iptables-nft", "iptables-legacy", "nftables", "ipvs"):
        assert [line for line in found if line.endswith(f"[{mode}]")] == [
            f"kproxy.conformance::{id}[{mode}]" for id in group
        ]


def test_each_result_is_one_of_pytests_and_junit_has_it(tmp_path: Path) -> None:
    (tmp_path / "xfails").write_text("cluster-ip.slices-are-merged  # not yet\n", encoding="utf-8")
    choice = "slices-are-merged or every-endpoint or localhost-serves or flows-go-on"
    arguments = ("-k", choice, "--xfails", "xfails", "--junit-xml", "j.xml", *SIMULATED)
    done = run(tmp_path, "--pyargs", "kproxy.conformance", *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "passes, and xfails:1 expects it to fail (not yet): take it out" in done.stdout
    cases = {case.get("name"): case for case in ET.parse(tmp_path / "j.xml").iter("testcase")}  # noqa: S314 (ours)
    kinds = {name: [child.tag for child in case] for name, case in cases.items()}
    assert kinds["cluster-ip.slices-are-merged"] == ["failure"]
    assert kinds["cluster-ip.every-endpoint-of-six"] == []
    assert kinds["node-port.localhost-serves-when-asked-to"] == ["skipped"]
    assert kinds["restart.flows-go-on"] == ["skipped"]


@pytest.mark.parametrize("package", [("--pyargs",), ()], ids=["pyargs", "pasted"])
def test_node_ids_choose_cases_as_they_are_printed(package: tuple[str, ...], tmp_path: Path) -> None:
    chosen = "kproxy.conformance::cluster-ip.slices-are-merged"
    done = run(tmp_path, *package, chosen, "-v", *SIMULATED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{chosen} PASSED" in done.stdout
    assert "1 passed" in done.stdout
    unknown = run(tmp_path, *package, "kproxy.conformance::cluster-ip.typo", *SIMULATED)
    assert unknown.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no item of kproxy.conformance has the name cluster-ip.typo" in unknown.stderr


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (("--proxy", "no-such.toml"), "proxy no-such.toml: No such file or directory"),
        (("--mode", "ebpf"), "--mode ebpf: kproxy has iptables, nftables, ipvs"),
        (("--xfails", "none"), "--xfails none: No such file or directory"),
    ],
)
def test_what_cannot_be_run_is_a_usage_error(
    arguments: tuple[str, ...], reported: str, tmp_path: Path
) -> None:
    done = run(tmp_path, "--pyargs", "kproxy.conformance", *arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert reported in done.stderr


def test_other_runs_meet_neither_our_options_nor_our_modules(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--mode')\n")
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_other(request):\n"
        "    assert request.config.getoption('--mode') == 'theirs'\n"
        "    assert [name for name in sys.modules if name.startswith('kproxy.')] == ['kproxy.pytest_plugin']\n"
    )
    done = run(tmp_path, "--mode", "theirs")
    assert done.returncode == 0, done.stdout + done.stderr
