"""The engine of these tests leaves the machine unchanged, and its absence is reported."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import docker
import pytest

from tests.kind import engine, k3s, kind


def machine() -> dict[str, object]:
    """State that an engine can change: links, rules and routes of its namespace, and folders that it writes to."""
    rules = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    return {
        "links": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "rules": rules,
        "forwarding": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        "routes": Path("/proc/net/route").read_text(),
        "folders": sorted(path.name for path in Path("/var/lib").glob("kproxy-engine-*")),
        "run": sorted(
            path.name for engine in ("docker", "containerd") for path in Path("/run").glob(f"{engine}*")
        ),
    }


def test_an_engine_of_our_own_touches_nothing_of_the_machine() -> None:
    before = machine()
    with engine.own_engine() as address:
        client = docker.DockerClient(base_url=address)
        assert client.info()["Containers"] == 0
        client.close()
        during = machine()
        process = Path(address.removeprefix("unix://")).with_name("pid").read_text()
        assert Path(f"/proc/{process}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    assert {**during, "folders": before["folders"]} == before
    assert machine() == before
    assert not Path("/proc", process).exists()


def test_without_an_engine_the_line_that_installs_one_is_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(engine, "SOCKET", tmp_path / "docker.sock")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(engine.NoEngine, match=r"apt-get install .*docker\.io"), engine.engine():
        pass


def test_a_socket_that_a_killed_engine_left_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    left = tmp_path / "docker.sock"
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(engine, "SOCKET", left)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(left))
        server.listen()
        assert engine.running_engine() == f"unix://{left}"
    assert left.exists()
    assert engine.running_engine() == ""


def test_what_a_cluster_lacks_is_reported_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(engine, "SOCKET", tmp_path / "docker.sock")
    monkeypatch.setenv("PATH", str(tmp_path))
    reported = "; ".join(kind.lacking())
    assert (
        f"kind is not installed: put kind-linux-amd64 of https://kind.sigs.k8s.io/dl/{kind.KIND}" in reported
    )
    assert "kubectl is not installed: https://kubernetes.io/docs/tasks/tools/" in reported
    assert "no Docker engine runs that may pull kindest/node" in reported
    assert f"no Docker engine runs that may pull {k3s.NODE_IMAGE}" in "; ".join(k3s.lacking())


def test_another_version_of_kind_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "kind"
    program.write_text("#!/bin/sh\necho kind v0.1.0 go1.99 linux/amd64\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert f"this is kind v0.1.0 go1.99 linux/amd64, tested is {kind.KIND}" in "; ".join(kind.lacking())
