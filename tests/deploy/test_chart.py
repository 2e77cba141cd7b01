"""The Helm chart and the kustomize overlays are two ways to the same objects: rendered by `helm` and `kubectl`, and compared."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.deploy import DEPLOY, OVERLAYS, key

CHART = DEPLOY / "helm/kproxy"


def output(program: str, *arguments: str) -> str:
    found = shutil.which(program)
    assert found, (
        f"{program} is missing: install it (helm.sh, kubernetes.io/docs/tasks/tools) and put it on PATH"
    )
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> dict[tuple[str, str], Any]:
    return {key(document): document for document in yaml.safe_load_all(text) if document}


def template(*values: str) -> dict[tuple[str, str], Any]:
    settings = [word for value in values for word in ("--set", value)]
    return objects(output("helm", "template", "kproxy", str(CHART), "--namespace", "kube-system", *settings))


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_chart_and_overlay_give_the_same_objects(overlay: Path) -> None:
    assert template(f"mode={overlay.name}") == objects(output("kubectl", "kustomize", str(overlay)))


def test_another_value_gives_other_objects() -> None:
    """Control: the comparison above would see a difference."""
    plain, other = template(), template("clusterCIDR=10.9.0.0/16", "image.repository=registry.example/kproxy")
    assert {name for name in plain if plain[name] != other[name]} == {
        ("ConfigMap", "kproxy"),
        ("DaemonSet", "kproxy"),
    }


def test_a_mode_that_there_is_not_is_refused() -> None:
    with pytest.raises(
        AssertionError, match="value must be one of 'iptables', 'ipvs', 'nftables', 'userspace'"
    ):
        template("mode=ebpf")


def test_the_chart_has_no_fault_that_helm_knows() -> None:
    output("helm", "lint", "--strict", str(CHART))
