"""``kproxy conformance fuzz`` on rules in memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.conformance.testbeds.simulator import BACKENDS
from kproxy.conformance.testbeds.simulator.walk import NodeView, OpenKernel, Walked
from kproxy.model.network import Address, Family, Packet
from kproxy.proxy.plan import Plan


def fuzz(*arguments: str) -> int:
    return main(["conformance", "fuzz", "--testbed", "simulator", "--worlds", "20", *arguments])


def test_lawful_worlds_are_counted_with_their_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz("--seed", "5") == 0
    assert re.search(r"20 worlds of seed 5\nkproxy \(iptables\): 20 passed", capsys.readouterr().out)


def test_without_a_seed_one_is_made_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    fuzz()
    assert re.search(r"20 worlds of seed \d+", capsys.readouterr().out)


def broken(opened: OpenKernel) -> OpenKernel:
    """A mode that serves nothing."""

    class Broken:
        def __init__(self, family: Family, mark: int) -> None:
            self.kernel = opened(family, mark)

        def apply(self, plan: Plan, addresses: frozenset[Address]) -> None:
            self.kernel.apply(replace(plan, services=(), detector=None), addresses)

        def walk(self, packet: Packet, view: NodeView) -> Sequence[Walked]:
            return self.kernel.walk(packet, view)

    return Broken


def test_a_failing_world_is_reported_and_kept_small(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(BACKENDS, "iptables", broken(BACKENDS["iptables"]))
    assert fuzz("--seed", "5", "--out", str(tmp_path)) == 1
    reported = capsys.readouterr().out
    assert "lawful:" in reported
    kept = sorted(tmp_path.glob("fuzz_world_5_*.py"))
    assert kept
    assert f"kept:    {kept[0]}" in reported
    assert kept[0].read_text().count("Probe(") == 1


def test_two_modes_are_compared_and_only_differences_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fuzz("--seed", "5", "--against-mode", "iptables") == 0
    assert re.search(r"\d+ packets, 0 with different outcomes", capsys.readouterr().out)
    monkeypatch.setitem(BACKENDS, "nftables", broken(BACKENDS["nftables"]))
    assert fuzz("--seed", "5", "--against-mode", "nftables") == 1
    reported = capsys.readouterr().out
    assert "kproxy (nftables): untouched (unlawful)" in reported
    assert "kproxy (iptables): delivered, source" in reported


def test_a_mode_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz("--mode", "ebpf") == 2
    assert "--mode ebpf: kproxy has iptables" in capsys.readouterr().err
