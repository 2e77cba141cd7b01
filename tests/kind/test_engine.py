"""The engine of these tests leaves the machine as it found it, and says so when there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import docker
import pytest

from tests.kind import engine


def machine() -> dict[str, object]:
    """What an engine likes to change in the namespace it runs in, and where it leaves things."""
    rules = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    return {
        "links": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "rules": rules,
        "forwarding": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        "routes": Path("/proc/net/route").read_text(),
        "folders": sorted(path.name for path in Path("/var/lib").glob("kproxy-engine-*")),
        "socket": engine.SOCKET.exists(),
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


def test_without_an_engine_the_line_that_gives_one_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(engine, "SOCKET", tmp_path / "docker.sock")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(engine.NoEngine, match=r"apt-get install .*docker\.io"), engine.engine():
        pass
