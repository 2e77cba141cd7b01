"""A run's options as a command, and back; what a run needs of its kernel."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.conformance import command
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine import placement
from kproxy.conformance.generate.command import FuzzOptions
from kproxy.conformance.options import RunOptions, reproduce_command, run_arguments
from kproxy.lab.kernels.abilities import Ability

SCTP = [case for case in CATALOGUE if case.id.startswith("protocols.sctp")]
OTHERS = [case for case in CATALOGUE if case.id.startswith("cluster-ip.")]


def understood(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> RunOptions:
    seen: list[RunOptions] = []

    def run(options: RunOptions) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(command, "run_conformance", run)
    assert main(arguments) == 0
    return seen[0]


EVERYTHING = RunOptions(
    proxy="a b.toml",
    binary="/x y",
    mode="ipvs",
    testbed="simulator",
    kernel="auto",
    time="virtual",
    uml_kernel="/boot/linux",
    memory=512,
    guests=2,
    iptables="legacy",
    apiserver="kube",
    globs=("a.*", "b"),
    skips=("c.*",),
    last_failed=True,
    maxfail=3,
    case_files=("c d.py",),
    slow=True,
    shuffle=7,
    parallel=1,
    sync_timeout=2.5,
    json="-",
    yaml="y",
    junit="j",
    markdown="m",
    html="h",
    evidence=Path("else where"),
    xfails="x",
    dry_run=True,
    skip_missing_kernels=True,
    print_missing_packages=True,
)


@pytest.mark.parametrize("options", [RunOptions(), EVERYTHING])
def test_options_survive_being_formatted(options: RunOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    assert understood(run_arguments(options), monkeypatch) == options


def test_every_option_can_be_formatted() -> None:
    left = [
        f.name for f in fields(RunOptions) if getattr(EVERYTHING, f.name) == getattr(RunOptions(), f.name)
    ]
    assert left == []


def test_generated_worlds_are_run_on_the_subject_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RunOptions] = []

    def fuzz(options: FuzzOptions) -> int:
        seen.append(options.run)
        return 0

    monkeypatch.setattr("kproxy.conformance.generate.command.run_fuzz", fuzz)
    main(["conformance", "fuzz", "--apiserver", "kube", "--mode", "ipvs", "--sync-timeout", "9"])
    assert seen == [RunOptions(kernel="auto", mode="ipvs", apiserver="kube", sync_timeout=9.0)]


def test_the_process_in_a_guest_runs_on_the_kernel_it_finds_and_takes_slow_cases_in_virtual_time() -> None:
    options = RunOptions(
        kernel="uml", time="virtual", uml_kernel="/boot/linux", globs=("a.*",), json="r.json"
    )
    inner = placement.options_inside_kernel(options)
    assert (inner.kernel, inner.time, inner.slow) == ("host", "real", True)
    assert replace(inner, kernel="uml", time="virtual", uml_kernel="/boot/linux", slow=False) == options
    assert not placement.options_inside_kernel(replace(options, time="real")).slow


def test_again_names_the_kernel_that_a_run_had() -> None:
    inner = RunOptions(globs=("a.*",), json="r.json", slow=True)
    same = ["kproxy", "conformance", "run", "--proxy", "kproxy", "--mode", "iptables"]
    assert reproduce_command(inner, {"kernel-choice": "host"}) == [*same, "--kernel", "host"]
    travelled = reproduce_command(inner, {"kernel-choice": "uml", "time": "virtual"})
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
    assert wanted in placement.kernel_needs(options, OTHERS).always


def test_an_unknown_mode_needs_the_lab_alone() -> None:
    assert placement.kernel_needs(RunOptions(mode="ebpf"), OTHERS).always == placement.LAB_NEEDS


def test_sctp_cases_need_sctp_and_insist_on_it_when_requested() -> None:
    assert placement.kernel_needs(RunOptions(), OTHERS).fully == frozenset()
    whole = placement.kernel_needs(RunOptions(), CATALOGUE)
    assert (whole.fully, whole.insist) == (frozenset({need(Ability.SCTP), need(Ability.NFTABLES)}), False)
    requested = placement.kernel_needs(RunOptions(globs=("protocols.*",)), SCTP)
    assert (requested.fully, requested.insist) == (frozenset({need(Ability.SCTP)}), True)
