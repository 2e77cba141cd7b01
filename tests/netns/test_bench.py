"""The bench as a person starts it: several proxies on one world, and one that does not work."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.long

FEW = ("--mode", "nftables", "--repeat", "2", "--changes", "3", "--additions", "2")
KPROXY = '["{python}", "-m", "kproxy", "run", "--config", "{config}"]'
IDLE = '["sh", "-c", "echo I am idle; exec sleep 60"]'


def bench(where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "tests.bench", *FEW, "--results", str(where), *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)


def subject(where: Path, name: str, command: str) -> str:
    path = where / f"{name}.toml"
    path.write_text(f'name = "{name}"\nmodes = ["nftables"]\ncommand = {command}\n', encoding="utf-8")
    return str(path)


def results(where: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((where / "bench.json").read_text())["results"]
    return found


def test_proxies_are_measured_beside_one_another(tmp_path: Path) -> None:
    twin = subject(tmp_path, "twin", KPROXY)
    done = bench(tmp_path, "--size", "3x2", "--size", "5x2", "--versus", twin)
    assert done.returncode == 0, done.stdout + done.stderr
    found = results(tmp_path)
    names = [("kproxy", "3x2"), ("twin", "3x2"), ("kproxy", "5x2"), ("twin", "5x2")]
    assert [(one["subject"], one["size"]) for one in found] == names
    for one in found:
        counts = [len(one[key]) for key in ("start", "endpoint_change_seconds", "new_service_seconds")]
        assert counts == [2, 3, 2]
    assert found[0]["floor"] == found[1]["floor"] != found[2]["floor"]
    assert len(found[0]["floor"]["service"]) == 2 * 3
    assert len({one["rules"] for one in found}) == 1


def test_one_beside_that_does_nothing_is_reported_and_costs_nothing(tmp_path: Path) -> None:
    idle = subject(tmp_path, "idle", IDLE)
    done = bench(tmp_path, "--size", "3x1", "--versus", idle, "--sync-timeout", "10")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("idle nftables nft 3x1: Service") == 1
    assert [one["subject"] for one in results(tmp_path)] == ["kproxy"]


def test_the_proxy_that_is_requested_must_work(tmp_path: Path) -> None:
    idle = subject(tmp_path, "idle", IDLE)
    done = bench(tmp_path, "--size", "3x1", "--proxy", idle, "--versus", "kproxy", "--sync-timeout", "10")
    assert done.returncode == 1, done.stdout + done.stderr
    assert [one["subject"] for one in results(tmp_path)] == ["kproxy"]


def test_who_has_had_its_time_gets_no_more(tmp_path: Path) -> None:
    done = bench(tmp_path, "--size", "3x1", "--budget", "0.01")
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = results(tmp_path)
    assert [len(found[key]) for key in ("start", "endpoint_change_seconds")] == [1, 1]


def test_two_proxies_of_one_name_or_without_the_mode_are_refused(tmp_path: Path) -> None:
    twice = bench(tmp_path, "--versus", "kproxy")
    assert (twice.returncode, "two subjects are called kproxy" in twice.stdout) == (2, True)
    other = tmp_path / "other.toml"
    other.write_text('name = "other"\nmodes = ["ebpf"]\ncommand = ["true"]\n', encoding="utf-8")
    lacking = bench(tmp_path, "--versus", str(other))
    assert (lacking.returncode, "other has no mode nftables" in lacking.stdout) == (2, True)


def test_the_data_path_is_measured_beside_a_node_without_rules(tmp_path: Path) -> None:
    twin = subject(tmp_path, "twin", KPROXY)
    arguments = ("--datapath", "--size", "3x1", "--connects", "200", "--endpoints", "700", "--load", "1")
    done = bench(tmp_path, *arguments, "--churn", "2", "--versus", twin)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "datapath.json").read_text())
    churned = [one for one in written["results"] if one["place"].endswith((", endpoints", ", Services"))]
    found = [one for one in written["results"] if one not in churned]
    direct = ["direct", "direct, IPv6", "direct, UDP"]
    clients = ["first", "middle", "last", "node port", "external IP", "last, IPv6", "last, UDP", "crowd"]
    places = [*direct, *clients]
    floors = [(name, place) for name in ("no rules", "tracking alone") for place in direct]
    of_proxies = [(name, place) for name in ("kproxy", "twin") for place in places]
    assert [(one["subject"], one["place"]) for one in found] == [*floors, *of_proxies]
    assert {(one["connections"], one["failed"]) for one in found} == {(200, 0)}
    assert all(0 < one["median_us"] <= one["p99_us"] for one in found + churned)
    assert {one["failed"] for one in churned} == {0}
    assert len(churned) == 2 * (2 * 1 + 2 * 2), "two churns; directly on four nodes, through a Service on two"
    loads = [(one["subject"], one["kind"], one["place"]) for one in written["load"]]
    kinds = [("connect", ("last", "external IP")), ("stream", ("Service",)), ("datagrams", ("Service",))]
    assert loads == [
        (name, kind, place)
        for name in ("no rules", "tracking alone", "kproxy", "twin")
        for kind, served in kinds
        for place in ("direct", *(served if name in {"kproxy", "twin"} else ()))
    ]
    turns = [turn for one in written["load"] for turn in one["turns"]]
    assert len(turns) == len(loads)
    assert all(turn["count"] > 100 and turn["cpu"] > 0 and not turn["failed"] for turn in turns)


def test_an_idle_proxy_is_measured_while_changes_come_that_concern_no_rule(tmp_path: Path) -> None:
    twin = subject(tmp_path, "twin", KPROXY)
    arguments = ("--idle", "2", "--unrelated", "50", "--size", "3x1", "--versus", twin)
    done = bench(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "idle.json").read_text())["results"]
    assert [one["subject"] for one in found] == ["kproxy", "twin"]
    for one in found:
        assert 50 <= one["changes"] <= 110
        assert 0 <= one["cpu"] < one["seconds"]
        assert 10e6 < one["resident"] <= one["peak"]
