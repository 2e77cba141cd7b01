"""Selection and order of the tests of this folder, and the report on those not run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kind.standin.programs import NAMES

HERE = Path(__file__).parent


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
    assert not [line for line in tests if "standin-" in line or "kind-" in line]
    (standin,) = (line for line in lines if line.startswith("tests in the stand-in cluster were not run: "))
    assert "KUBEBUILDER_ASSETS is not set" in standin
    assert "kube-controller-manager and kube-scheduler of https://dl.k8s.io" in standin
    (kind,) = (line for line in lines if line.startswith("tests in a cluster of kind's were not run: "))
    assert "give --provider kind (kind is not installed" in kind


@pytest.mark.usefixtures("without")
def test_containers_come_first_and_the_stand_in_where_its_programs_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in NAMES:
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    _, lines = collected()
    rolling, container = "test_cluster.py::test_a_rolling_update", "test_containers.py::test_what_is_wrong"
    order = [line for line in lines if rolling in line or container in line]
    assert container in order[0]
    assert len(order) == 5
    assert all("standin" in line for line in order[1:])


@pytest.mark.usefixtures("without")
def test_a_provider_that_cannot_be_is_refused() -> None:
    status, lines = collected("--provider", "kind")
    assert status == 2
    assert "kind is not installed: put kind-linux-amd64" in "\n".join(lines)
