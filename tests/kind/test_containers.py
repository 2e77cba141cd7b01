"""Our image as a node's proxy, in the containers that a cluster would make, judged by real packets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from kproxy.conformance import subject as subjects
from kproxy.conformance.case import Profile
from kproxy.conformance.configuration import Placement, kube_proxy_configuration
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.conformance.session import Session, conduct
from kproxy.conformance.testbeds import proxies
from kproxy.lab.kernels.abilities import Ability, probe
from tests.kind import nodes
from tests.kind.nodes import PYTHON, START
from tests.kind.selection import GLOBS, PROFILES, selected

GOOD = {Result.PASSED, Result.DEVIATION, Result.UNSUPPORTED}

Words = tuple[str, ...]
MEGABYTES = 130
ONE_CASE = ("cluster-ip.reached-from-everywhere",)
NET_ADMIN = 1 << 12

NOT_NEEDED = {
    "sh",
    "bash",
    "dash",
    "busybox",
    "perl",
    "gcc",
    "cc",
    "as",
    "ld",
    "make",
    "apt",
    "dpkg",
    "pip",
    "tar",
}

KPROXY = replace(subjects.load("kproxy"), command=("run", "--config", "{config}"))
"""As the arguments of the image's entry point."""


def has_ipvs() -> bool:
    return not probe([Ability.IP_VS])[Ability.IP_VS]


def judge(mode: str, image: str, where: Path, globs: Words = ONE_CASE, profiles: Words = PROFILES) -> Report:
    cases = selected(globs, profiles)
    session = Session(
        subject=KPROXY,
        mode=mode,
        cases=cases,
        evidence=where / "evidence",
        environment={"testbed": "containers"},
        parallel=1,
    )
    return asyncio.run(conduct(session, nodes.opener(KPROXY, mode, image, where), lambda _: None))


def is_good(entry: CaseResult) -> bool:
    """A kernel without SCTP says so; nothing else may be left out."""
    return entry.result in GOOD or (entry.result is Result.NOT_RUNNABLE and "SCTP" in entry.reason)


@pytest.mark.parametrize("mode", ["iptables", "nftables", "ipvs"])
def test_in_every_mode_that_the_kernel_has_packets_go_where_they_may(
    mode: str, image: str, tmp_path: Path
) -> None:
    if mode == "ipvs" and not has_ipvs():
        report = judge(mode, image, tmp_path)
        assert [entry.result for entry in report.results] == [Result.BROKEN]
        assert "node a was not prepared" in report.results[0].reason
        assert "IPVS" in report.results[0].reason
        return
    report = judge(mode, image, tmp_path, GLOBS)
    assert {e.case.id: (e.result.value, e.reason) for e in report.results if not is_good(e)} == {}
    assert sum(entry.result is Result.PASSED for entry in report.results) >= 80


def test_what_is_wrong_is_seen(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positive control: the same containers with a proxy that is told to masquerade what it must not."""

    def wrong(profile: Profile, place: Placement) -> str:
        return kube_proxy_configuration(replace(profile, masquerade_all=True), place)

    monkeypatch.setattr(proxies, "kube_proxy_configuration", wrong)
    report = judge("nftables", image, tmp_path)
    (entry,) = report.results
    assert entry.result is Result.FAILED
    assert any("masquerade" in clause for finding in entry.findings for clause in finding.clauses)


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def test_a_proxy_in_a_container_is_not_root_and_may_administer_its_network_alone(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []
    kill = nodes.ContainerProxies.kill

    async def note(self: nodes.ContainerProxies, node: str) -> None:
        seen.append(status_of(self.pid(node)))
        await kill(self, node)

    monkeypatch.setattr(nodes.ContainerProxies, "kill", note)
    judge("nftables", image, tmp_path)
    assert len(seen) == 2
    for status in seen:
        assert status["Uid"].split() == ["65532"] * 4
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == NET_ADMIN


def test_a_node_that_nobody_prepared_is_told(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes.ContainerProxies, "_prepare", lambda *_: None)
    report = judge("nftables", image, tmp_path, ("*",), profiles=("liberal",))  # which is about sysctls
    assert report.results[0].result is Result.BROKEN
    assert "the proxy of node a ended with 1" in report.results[0].reason
    assert "Traceback" not in report.results[0].reason


def test_the_image_is_small_and_has_no_shell_compiler_or_package_manager(
    client: docker.DockerClient, image: str
) -> None:
    attributes = client.images.get(image).attrs
    assert attributes["Size"] < MEGABYTES * 1_000_000
    assert attributes["Config"]["User"] == "65532:65532"
    assert attributes["Config"]["Entrypoint"] == [PYTHON, START]
    look = (
        "import os; [print(os.path.join(d, f)) for d, _, fs in os.walk('/') for f in fs "
        "if not d.startswith(('/proc', '/sys')) and os.access(os.path.join(d, f), os.X_OK)]"
    )
    output = client.containers.run(
        image, [PYTHON, "-c", look], entrypoint=[], network_mode="none", remove=True
    )
    names = {Path(path).name for path in output.decode().split()}
    assert {"python3.11", "nft", "iptables-restore", "conntrack", "ipset"} <= names
    assert names & NOT_NEEDED == set()
