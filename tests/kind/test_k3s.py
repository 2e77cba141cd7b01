"""Containers of a cluster of k3s, made and not started: no image can be pulled where these tests were written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kind import k3s


@pytest.mark.usefixtures("client")
def test_the_server_has_no_service_proxy_and_takes_no_pods(tmp_path: Path) -> None:
    made = k3s.server("one-server", "token", tmp_path, 16443)
    command = made._command
    assert isinstance(command, list)
    assert command[0] == "server"
    assert {"--disable-kube-proxy", "--node-taint=node-role.kubernetes.io/control-plane=:NoSchedule"} <= {
        *command
    }
    assert any(token.startswith("--tls-san=") for token in command), "kubectl is given this machine's port"
    assert made.ports["6443"] == 16443
    assert made.volumes[str(tmp_path)] == {"bind": "/var/lib/rancher/k3s/agent/images", "mode": "ro"}
    assert made.env["K3S_URL"] == "", "it would join another server"


@pytest.mark.usefixtures("client")
def test_an_agent_joins_the_server_by_its_name(tmp_path: Path) -> None:
    made = k3s.agent("one-worker", "token", tmp_path, "one-server")
    assert made._command == ["agent"]
    of_k3s = {name: value for name, value in made.env.items() if name.startswith("K3S_")}
    assert of_k3s == {
        "K3S_TOKEN": "token",
        "K3S_NODE_NAME": "one-worker",
        "K3S_URL": "https://one-server:6443",
    }
    assert made._kwargs["privileged"]


@pytest.mark.usefixtures("client")
def test_the_image_is_saved_where_k3s_imports_it(image: str, tmp_path: Path) -> None:
    folder = k3s._saved(image, tmp_path / "images")
    assert (folder / "kproxy.tar").stat().st_size > 1_000_000
