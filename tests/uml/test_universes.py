"""Universes: a seed repeats itself to the nanosecond, for every mode, and another seed does not.

Of kproxy, and of the programs that ``KPROXY_TEST_KUBE_PROXY`` and ``KPROXY_TEST_KUBE_ROUTER`` name.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kproxy.conformance.case import (
    Apply,
    CaseEndpoint,
    Policy,
    Port,
    Type,
    client,
    pod,
    remote,
    service,
)
from kproxy.conformance.subjects.subject import load_subject
from kproxy.model.network import Family, Protocol
from kproxy.universes.draw import draw_schedule
from kproxy.universes.judge import judge_universe
from kproxy.universes.launch import find_kernel, run_universes
from kproxy.universes.recording import SECOND
from kproxy.universes.schedule import FaultKind, Schedule, TimedChange, TimedFault, TimedFlow, TimedProbe
from kproxy.universes.schedule_files import load_schedule
from kproxy.universes.stop import Stop

KPROXY = [
    ("kproxy", "", mode, variant)
    for mode, variant in (
        ("iptables", "nft"),
        ("iptables", "legacy"),
        ("nftables", "nft"),
        ("ipvs", "legacy"),
        ("userspace", "nft"),
    )
]
PAGES = Path(__file__).parents[2] / "docs" / "findings"
FINDINGS = sorted(PAGES.glob("*.py"))
OTHERS = [
    (name, os.environ[variable], mode, "auto")
    for name, variable in (
        ("kube-proxy", "KPROXY_TEST_KUBE_PROXY"),
        (str(PAGES / "kube-router.toml"), "KPROXY_TEST_KUBE_ROUTER"),
    )
    if variable in os.environ
    for mode in load_subject(name, os.environ[variable]).modes
]

OF_IPTABLES = {
    "kube-proxy-jump-there-twice": "nft",
    "kube-proxy-lock-held-at-start": "legacy",
    "kube-proxy-one-family-alone": "legacy",
    "kube-proxy-reject-goes-first": "legacy",
}
"""Findings in iptables mode, with the variant of the tools: legacy has a lock, and two commits where it matters."""


def test_kproxy_is_tested_in_all_modes() -> None:
    assert {mode for _, _, mode, _ in KPROXY} == set(load_subject("kproxy").modes)


@pytest.mark.parametrize(
    "subject", [*KPROXY, *OTHERS], ids=lambda subject: "-".join((Path(subject[0]).stem, *subject[2:]))
)
def test_a_seed_repeats_itself_and_another_does_not(subject: tuple[str, str, str, str]) -> None:
    schedules = [draw_schedule(seed) for seed in (7, 7, 8)]
    ran = run_universes(find_kernel(), schedules, subject, 2)
    digests = [(run.schedule.seed, run.digest, run.error) for run in ran]
    assert [error for _, _, error in digests] == ["", "", ""]
    assert len({digest for seed, digest, _ in digests if seed == 7}) == 1
    assert len({digest for _, digest, _ in digests}) == 2


@pytest.mark.parametrize("subject", [KPROXY[2], *OTHERS], ids=str)
def test_a_universe_that_is_stopped_is_the_same_until_then(subject: tuple[str, str, str, str]) -> None:
    schedule, until = draw_schedule(7), 30.0
    before: list[list[object]] = []
    for stop in (None, Stop(until), Stop(until, ("a ip route", "client ip -s link"))):
        (run,) = run_universes(find_kernel(), [schedule], subject, 1, stop)
        assert run.recording, run.error
        lines = [line for line in run.recording.probes() if line.until < until * SECOND]
        assert any(run.recording.states()) is bool(stop)
        before.append(list(lines))
    assert len(before[0]) > 20
    assert before[1] == before[0] == before[2]


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.stem)
def test_a_findings_schedule_shows_it_and_kproxy_is_lawful_in_it(path: Path) -> None:
    schedule = load_schedule(path)
    mode = "ipvs" if "ipvs" in path.stem else "iptables" if path.stem in OF_IPTABLES else "nftables"
    where = mode, OF_IPTABLES.get(path.stem, "auto")
    others = [
        (name, program, *where)
        for name, program, other, _ in OTHERS
        if path.stem.startswith(Path(name).stem) and other == mode
    ]
    for subject in (("kproxy", "", *where), *others):
        (run,) = run_universes(find_kernel(), [schedule], subject, 1)
        assert run.recording, run.error
        verdict = judge_universe(schedule, run.recording)
        assert verdict.result == ("lawful" if subject[0] == "kproxy" else "unlawful"), verdict.failure


def test_a_flow_follows_its_service_to_policy_local() -> None:
    """The socket of all endpoints stays open for the cluster IP; a client of the node port chooses among this node's when its own ends."""
    before = service("dns", "b1", type=Type.NODE_PORT, ports=(Port(protocol=Protocol.UDP),))
    forms = [
        before,
        before.replace(endpoints=(CaseEndpoint(on="a1"), CaseEndpoint(on="b1"), CaseEndpoint(on="b2"))),
        before.replace(
            endpoints=(CaseEndpoint(on="a1"), CaseEndpoint(on="b1"), CaseEndpoint(on="b2")),
            external_policy=Policy.LOCAL,
        ),
        before.replace(
            endpoints=(CaseEndpoint(on="a1"), CaseEndpoint(on="b2")), external_policy=Policy.LOCAL
        ),
    ]
    schedule = Schedule(
        seed=3,
        family=Family.IPV4,
        changes=tuple(TimedChange(at=10.0 * number, step=Apply(form)) for number, form in enumerate(forms)),
        flows=tuple(
            TimedFlow(at=6.0, sender=sender, to=to, pause=1.0)
            for sender, to in (
                (remote("a"), before.node_port("a")),
                (client("a"), before.node_port("a")),
                (pod("a2"), before.cluster_ip),
            )
        ),
    )
    (run,) = run_universes(find_kernel(), [schedule], ("kproxy", "", "userspace", "nft"), 1)
    assert run.recording, run.error
    verdict = judge_universe(schedule, run.recording)
    assert (verdict.violations, verdict.failure) == ((), "")
    moved = [line.text.split()[2] for number in range(2) for line in run.recording.exchanges(number)]
    assert (moved[0], moved[-1]) == ("b1", "a1")


LAZY = """
name = "lazy"
modes = ["nftables", "ipvs"]
command = ["{python}", "-m", "kproxy", "run", "--config", "{config}"]
cleanup-command = ["true"]
"""


@pytest.mark.parametrize("mode", ["nftables", "ipvs"])
def test_what_a_proxy_leaves_behind_is_its_failure(mode: str, tmp_path: Path) -> None:
    (tmp_path / "lazy.toml").write_text(LAZY)
    schedule = Schedule(
        seed=1, family=Family.IPV4, changes=(TimedChange(at=0.0, step=Apply(service("web", "a1"))),)
    )
    complaints = {}
    for subject in ("kproxy", str(tmp_path / "lazy.toml")):
        (run,) = run_universes(find_kernel(), [schedule], (subject, "", mode, "auto"), 1)
        assert run.recording, run.error
        complaints[subject] = judge_universe(schedule, run.recording).failure
    assert not complaints.pop("kproxy")
    (complaint,) = complaints.values()
    assert "its cleanup left" in complaint


HOARDING = """
name = "hoarding"
modes = ["nftables"]
command = ["{{python}}", "-c", "{program}", "run", "--config", "{{config}}"]
"""
OPENS_A_FILE_A_SECOND = """
import os, sys, threading, time
from kproxy.cli import main
def hoard():
    while True:
        time.sleep(1)
        os.open('/dev/null', 0)
threading.Thread(target=hoard, daemon=True).start()
sys.exit(main())
"""


def test_a_proxy_that_opens_more_and_more_has_failed(tmp_path: Path) -> None:
    (tmp_path / "hoarding.toml").write_text(
        HOARDING.format(program=OPENS_A_FILE_A_SECOND.replace("\n", "\\n"))
    )
    changes = (TimedChange(at=at, step=Apply(service("web", "a1"))) for at in (0.0, 30.0))
    schedule = Schedule(seed=1, family=Family.IPV4, changes=tuple(changes))
    complaints = {}
    for subject in ("kproxy", str(tmp_path / "hoarding.toml")):
        (run,) = run_universes(find_kernel(), [schedule], (subject, "", "nftables", "auto"), 1)
        assert run.recording, run.error
        complaints[subject] = judge_universe(schedule, run.recording).failure
    assert not complaints.pop("kproxy")
    (complaint,) = complaints.values()
    assert "descriptors open" in complaint


IDLE = """
name = "idle"
modes = ["nftables"]
command = ["sleep", "infinity"]
"""


def test_a_proxy_is_replaced_by_its_other_version_and_back(tmp_path: Path) -> None:
    """With one that does nothing, a change is not in effect on that node until the first is back."""
    (tmp_path / "idle.toml").write_text(IDLE)
    before, after = service("web", "a1"), service("web", "b1")
    changes = (TimedChange(at=0.0, step=Apply(before)), TimedChange(at=20.0, step=Apply(after)))
    replaced = (
        TimedFault(at=at, seconds=0.0, kind=FaultKind.PROXY_REPLACED, node="a") for at in (10.0, 40.0)
    )
    probes = (
        TimedProbe(at=at, sender=pod(sender), to=before.cluster_ip)
        for at in (18.0, 30.0, 50.0)
        for sender in ("a2", "b2")
    )
    schedule = Schedule(
        seed=1, family=Family.IPV4, changes=tuple(changes), faults=tuple(replaced), probes=tuple(probes)
    )
    unlawful = {}
    for other in ("kproxy", str(tmp_path / "idle.toml")):
        subject = ("kproxy", "", "nftables", "auto", other, "")
        (run,) = run_universes(find_kernel(), [schedule], subject, 1)
        assert run.recording, run.error
        verdict = judge_universe(schedule, run.recording)
        assert (verdict.failure, verdict.judged) == ("", 6)
        unlawful[other] = [(one.at, one.sent.sender) for one in verdict.violations]
    assert unlawful.pop("kproxy") == []
    ((at, sender),) = unlawful.popitem()[1]
    assert (round(at), sender) == (30, pod("a2"))
