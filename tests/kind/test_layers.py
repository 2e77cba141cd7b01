"""Selection and order of the tests of this folder, and the report on those not run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.lab.cluster.programs import KUBERNETES

HERE = Path(__file__).parent
OTHERS = ("etcd", "containerd", "ctr", "runc", "openssl")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any prerequisite."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def collected(*arguments: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", str(HERE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    return done.returncode, (done.stdout + done.stderr).splitlines()


@pytest.mark.usefixtures("without")
def test_what_cannot_run_is_left_out_with_a_line_that_names_what_it_needs() -> None:
    status, lines = collected()
    assert status == 0
    tests = [line for line in lines if "::" in line]
    assert tests
    assert not [line for line in tests if "local-" in line or "kind-" in line]
    (local,) = (
        line for line in lines if line.startswith("tests in a cluster of this machine's were not run: ")
    )
    assert "(give --assets, or set KUBEBUILDER_ASSETS): `kproxy lab cluster fetch` gets them" in local
    assert "containerd: apt-get install containerd" in local
    (kind,) = (line for line in lines if line.startswith("tests in a cluster of kind's were not run: "))
    assert "give --provider kind (kind is not installed" in kind


def test_containers_come_first_and_clusters_where_their_programs_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in (*KUBERNETES, *OTHERS, "images/kproxy.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    _, lines = collected()
    rolling, container = "test_cluster.py::test_a_rolling_update", "test_containers.py::test_what_is_wrong"
    order = [line for line in lines if rolling in line or container in line]
    assert container in order[0]
    assert len(order) == 5
    assert all("local-" in line for line in order[1:])


@pytest.mark.usefixtures("without")
def test_a_provider_that_cannot_be_is_refused() -> None:
    status, lines = collected("--provider", "kind")
    assert status == 2
    assert "kind is not installed: put kind-linux-amd64" in "\n".join(lines)
