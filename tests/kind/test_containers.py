"""Our image as a node's proxy, in the containers that a cluster would make, judged by real packets."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from kproxy.conformance.case import Profile
from kproxy.conformance.engine.session import Session, run_session
from kproxy.conformance.reports.results import CaseResult, Report, Result
from kproxy.conformance.subjects import subject as subjects
from kproxy.conformance.subjects.configuration import NodeConfiguration, kube_proxy_configuration
from kproxy.conformance.testbeds import proxies
from kproxy.conformance.testbeds.cluster.agent import KEY
from kproxy.conformance.testbeds.cluster.pods import agent_pod_document, agent_pods
from kproxy.lab.kernels.abilities import Ability, probe_abilities
from tests.kind import nodes
from tests.kind.nodes import PYTHON, START
from tests.kind.selection import GLOBS, PROFILES, selected
from tests.support.waiting import eventually

GOOD = {Result.PASSED, Result.DEVIATION, Result.UNSUPPORTED}

Arguments = tuple[str, ...]
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

KPROXY = replace(subjects.load_subject("kproxy"), command=("run", "--config", "{config}"))
"""As the arguments of the image's entry point."""


def has_ipvs() -> bool:
    return not probe_abilities([Ability.IP_VS])[Ability.IP_VS]


def judge(
    mode: str, image: str, where: Path, globs: Arguments = ONE_CASE, profiles: Arguments = PROFILES
) -> Report:
    cases = selected(globs, profiles)
    session = Session(
        subject=KPROXY,
        mode=mode,
        cases=cases,
        evidence=where / "evidence",
        environment={"testbed": "containers"},
        parallel_labs=1,
    )
    return asyncio.run(run_session(session, nodes.opener(KPROXY, mode, image, where), lambda _: None))


def is_good(entry: CaseResult) -> bool:
    """True if the result is good, or the case needs SCTP and the kernel has none."""
    return entry.result in GOOD or (entry.result is Result.NOT_RUNNABLE and "lacks sctp" in entry.reason)


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
    """Positive control: the same containers with a proxy that is configured to masquerade what it must not."""

    def wrong(profile: Profile, place: NodeConfiguration) -> str:
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


def test_a_node_that_is_not_prepared_is_reported(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes.ContainerProxies, "_prepare", lambda *_: None)
    report = judge("nftables", image, tmp_path, ("*",), profiles=("liberal",))  # which is about sysctls
    assert report.results[0].result is Result.FAILED
    assert re.search("the proxy of node [ab] ended with 1", report.results[0].reason)
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


QUERY_THE_AGENT = """
import os, urllib.request
from ipaddress import ip_address
from kproxy.conformance.testbeds.cluster import messages, wire
from kproxy.conformance.testbeds.cluster.agent import KEY, KEY_HEADER, PATH
from kproxy.lab.probes.observation import ProbeRequest
from kproxy.model.network import Protocol

def send(message):
    headers = {KEY_HEADER: os.environ[KEY]}
    request = urllib.request.Request("http://127.0.0.1:7001" + PATH, wire.encode_agent_message(message), headers)
    with urllib.request.urlopen(request) as answer:
        return wire.decode_agent_message(answer.read())

assert send(messages.Hello()).name == "a1"
assert send(messages.Serve((messages.Listener(20000, Protocol.TCP, "a1"),))).problems == ()
(seen,) = send(messages.SendProbes(ProbeRequest(sender="a1", destination=ip_address("127.0.0.1"), port=20000))).seen
print(seen.observation.who, [sighting.interface for sighting in seen.evidence.sightings])
print(sorted(send(messages.ReadState()).texts))
"""


def test_the_image_is_an_agent_as_the_cluster_testbed_starts_it(
    client: docker.DockerClient, image: str
) -> None:
    """Its probes, servers and captures work with the two capabilities it gets, and it reads the rules of its place."""
    (first, *_) = agent_pods({"a": "node-a", "b": "node-b"})
    (container,) = agent_pod_document(first, "somewhere", image, {KEY: "secret"})["spec"]["containers"]
    rights = container["securityContext"]["capabilities"]
    made = client.containers.run(
        container["image"],
        container["args"],
        entrypoint=container["command"],
        environment={one["name"]: one["value"] for one in container["env"]},
        user=str(container["securityContext"]["runAsUser"]),
        cap_drop=rights["drop"],
        cap_add=rights["add"],
        tmpfs={mount["mountPath"]: "" for mount in container["volumeMounts"]},
        network_mode="none",
        detach=True,
    )
    try:
        requested = "import socket; socket.create_connection(('127.0.0.1', 7001))"
        assert eventually(lambda: made.exec_run([PYTHON, "-c", requested]).exit_code == 0, 20, 0.1), (
            made.logs()
        )
        assert made.exec_run(["nft", "add table ip somebodys"]).exit_code == 0
        reported = made.exec_run([PYTHON, "-c", QUERY_THE_AGENT])
        assert isinstance(reported.output, bytes)
        assert reported.exit_code == 0, reported.output.decode()
        probed, texts = reported.output.decode().splitlines()
        assert probed == "a1 ['lo', 'lo']"
        assert "'nft'" in texts
    finally:
        made.remove(force=True)
