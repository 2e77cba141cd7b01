"""A run's options as a command, and back; what a run needs of its kernel."""

from dataclasses import replace
from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.conformance import command, placement
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.options import RunOptions, again, words
from kproxy.lab.kernels.abilities import Ability

SCTP = [case for case in CATALOGUE if case.id.startswith("protocols.sctp")]
OTHERS = [case for case in CATALOGUE if case.id.startswith("cluster-ip.")]


def understood(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> RunOptions:
    seen: list[RunOptions] = []

    def run(options: RunOptions) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(command, "run", run)
    assert main(arguments) == 0
    return seen[0]


@pytest.mark.parametrize(
    "options",
    [
        RunOptions(),
        RunOptions(
            kernel="auto", time="virtual", memory=512, guests=2, uml_kernel="/boot/linux", iptables="legacy"
        ),
        RunOptions(proxy="a b.toml", binary="/x y", globs=("a.*", "b"), slow=True, shuffle=7, parallel=1),
        RunOptions(mode="ipvs", testbed="simulator", patience=2.5, json="-", evidence=Path("else where")),
    ],
)
def test_options_survive_being_said(options: RunOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    assert understood(words(options), monkeypatch) == options


def test_the_process_in_a_guest_runs_on_the_kernel_it_finds_and_takes_slow_cases_in_virtual_time() -> None:
    options = RunOptions(
        kernel="uml", time="virtual", uml_kernel="/boot/linux", globs=("a.*",), json="r.json"
    )
    inner = placement.inside(options)
    assert (inner.kernel, inner.time, inner.slow) == ("host", "real", True)
    assert replace(inner, kernel="uml", time="virtual", uml_kernel="/boot/linux", slow=False) == options
    assert not placement.inside(replace(options, time="real")).slow


def test_again_names_the_kernel_that_a_run_had() -> None:
    inner = RunOptions(globs=("a.*",), json="r.json", slow=True)
    same = ["kproxy", "conformance", "run", "--proxy", "kproxy", "--mode", "iptables"]
    assert again(inner, {"kernel-choice": "host"}) == same
    travelled = again(inner, {"kernel-choice": "uml", "time": "virtual"})
    assert travelled == [*same, "--kernel", "uml", "--time", "virtual"]


def need(*abilities: Ability) -> frozenset[Ability]:
    return frozenset(abilities)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (RunOptions(), need(Ability.IPTABLES_NFT, Ability.IPTABLES_LEGACY)),
        (RunOptions(iptables="nft"), need(Ability.IPTABLES_NFT)),
        (RunOptions(iptables="legacy"), need(Ability.IPTABLES_LEGACY)),
        (RunOptions(mode="nftables"), need(Ability.NFTABLES)),
        (RunOptions(mode="ipvs"), need(Ability.IP_VS)),
        (RunOptions(mode="ipvs"), need(Ability.DUMMY)),
        (RunOptions(mode="ipvs"), need(Ability.IPSET)),
        (RunOptions(time="virtual"), need(Ability.TIME_TRAVEL)),
    ],
)
def test_mode_variant_and_time_need_their_abilities(options: RunOptions, wanted: frozenset[Ability]) -> None:
    assert wanted in placement.needs(options, OTHERS).always


def test_a_mode_that_nobody_knows_needs_the_lab_alone() -> None:
    assert placement.needs(RunOptions(mode="ebpf"), OTHERS).always == placement.LAB


def test_sctp_cases_need_sctp_and_insist_on_it_when_asked_for() -> None:
    assert placement.needs(RunOptions(), OTHERS).fully == frozenset()
    whole = placement.needs(RunOptions(), CATALOGUE)
    assert (whole.fully, whole.insist) == (frozenset({need(Ability.SCTP)}), False)
    asked = placement.needs(RunOptions(globs=("protocols.*",)), SCTP)
    assert (asked.fully, asked.insist) == (frozenset({need(Ability.SCTP)}), True)
