"""Which runs one command means, and what they are called."""

from pathlib import Path

import pytest

from kproxy.conformance.engine import modes
from kproxy.conformance.options import RunOptions
from kproxy.conformance.subjects.subject import Subject

EVERY = RunOptions(mode="", json="-", evidence=Path("seen"))


def subject(*names: str) -> Subject:
    return Subject(name="s", modes=names, command=("true",))


def runs(options: RunOptions, *names: str) -> list[tuple[str, str]]:
    return [(run.mode, run.iptables) for run in modes.runs_by_mode(options, subject(*names))]


def test_a_mode_that_is_requested_is_one_run_just_as_it_was_requested() -> None:
    one = RunOptions(mode="iptables", json="r.json")
    assert modes.runs_by_mode(one, subject("iptables", "ipvs")) == (one,)


def test_without_a_mode_each_is_run_in_the_subjects_order_and_iptables_with_both_variants() -> None:
    assert runs(EVERY, "ipvs", "iptables", "ebpf") == [
        ("ipvs", "auto"),
        ("iptables", "nft"),
        ("iptables", "legacy"),
        ("ebpf", "auto"),
    ]


def test_a_variant_that_is_requested_is_the_only_one() -> None:
    requested = RunOptions(mode="", iptables="legacy")
    assert runs(requested, "iptables", "ipvs") == [("iptables", "legacy"), ("ipvs", "legacy")]


def test_in_the_simulator_there_are_no_variants() -> None:
    simulated = RunOptions(mode="", testbed="simulator")
    assert runs(simulated, "iptables", "ipvs") == [("iptables", "auto"), ("ipvs", "auto")]


@pytest.mark.parametrize(
    ("mode", "variant", "name"),
    [
        ("iptables", "nft", "iptables nft"),
        ("iptables", "legacy", "iptables legacy"),
        ("iptables", "auto", "iptables"),
        ("nftables", "auto", "nftables"),
        ("ipvs", "legacy", "ipvs"),
    ],
)
def test_a_run_is_named_by_its_mode_and_by_what_distinguishes_it_from_another(
    mode: str, variant: str, name: str
) -> None:
    assert modes.run_name(RunOptions(mode=mode, iptables=variant)) == name


def test_runs_of_one_command_leave_evidence_apart_and_write_no_results_of_their_own() -> None:
    places = {
        modes.as_child_run(run).evidence for run in modes.runs_by_mode(EVERY, subject("iptables", "ipvs"))
    }
    assert places == {Path("seen/iptables-nft"), Path("seen/iptables-legacy"), Path("seen/ipvs")}
    assert {
        modes.as_child_run(run).json for run in modes.runs_by_mode(EVERY, subject("iptables", "ipvs"))
    } == {""}
