"""The manifests hold what Kubernetes' schemas require, the configuration in them is one that the daemon takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from kproxy.cli import build_parser
from kproxy.proxy.backends import BACKENDS
from kproxy.proxy.daemon.config.load import load_configuration
from tests.support.deploy import DEPLOY, OVERLAYS, Document, Objects, base, documents, merged, rendered

VERSIONS = ("1.33", "1.36")


def pod(found: Objects) -> Document:
    template: Document = found["DaemonSet", "kproxy"]["spec"]["template"]["spec"]
    return template


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_every_object_is_one_that_kubernetes_knows(overlay: Path, version: str) -> None:
    for document in rendered(overlay).values():
        kubernetes_validate.validate(document, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_seen() -> None:
    wrong = merged(base()["DaemonSet", "kproxy"], {"spec": {"updatePolicy": "RollingUpdate"}})
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_an_overlay_is_named_for_its_mode_and_its_configuration_is_valid(overlay: Path) -> None:
    data = rendered(overlay)["ConfigMap", "kproxy"]["data"]
    loaded = load_configuration(data["config.conf"])
    assert loaded.config.mode == overlay.name
    assert yaml.safe_load(data["kubeconfig.conf"])["users"][0]["user"] == {
        "tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"
    }


def test_each_backend_has_an_overlay() -> None:
    assert {path.name for path in OVERLAYS} == set(BACKENDS)


def test_the_daemon_may_administer_the_network_and_nothing_else() -> None:
    (container,) = pod(base())["containers"]
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN"]}
    assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"]) == (True, True)
    assert "privileged" not in security
    (prepare,) = pod(base())["initContainers"]
    assert prepare["args"] == [*container["args"], "--init-only"]


def test_what_is_mounted_is_there_and_the_configuration_is_where_it_is_looked_for() -> None:
    names = {volume["name"] for volume in pod(base())["volumes"]}
    for container in (*pod(base())["initContainers"], *pod(base())["containers"]):
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert set(mounts.values()) <= names
        assert mounts["/var/lib/kube-proxy"] == "config"
        assert "--config=/var/lib/kube-proxy/config.conf" in container["args"]


def test_it_may_read_what_the_daemon_reads_write_events_and_nothing_else() -> None:
    rules = base()["ClusterRole", "kproxy"]["rules"]
    may = {
        (group, kind): rule["verbs"]
        for rule in rules
        for group in rule["apiGroups"]
        for kind in rule["resources"]
    }
    read = ["list", "watch"]
    assert may == {
        ("", "services"): read,
        ("", "nodes"): read,
        ("discovery.k8s.io", "endpointslices"): read,
        ("networking.k8s.io", "servicecidrs"): read,
        ("events.k8s.io", "events"): ["create"],
    }


def test_the_pod_monitor_selects_our_pods() -> None:
    (monitor,) = documents(DEPLOY / "examples/podmonitor.yaml")
    labels = base()["DaemonSet", "kproxy"]["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_pods_of_the_job_share_all_seeds() -> None:
    (job,) = documents(DEPLOY / "examples/simulate-job.yaml")
    kubernetes_validate.validate(job, "1.33", strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    line = container["args"][0].replace('"$((JOB_COMPLETION_INDEX + 1))/20"', "20/20")
    options = build_parser().parse_args(shlex.split(line)[1:])
    assert options.shard.count == job["spec"]["completions"]
    assert job["spec"]["completionMode"] == "Indexed"
    assert "securityContext" not in container


def test_the_workflow_has_the_version_of_kind_that_the_tests_need() -> None:
    root = DEPLOY.parent
    requested = re.search(r'^KIND = "(v[\d.]+)"$', (root / "tests/kind/kind.py").read_text(), re.MULTILINE)
    steps = yaml.safe_load((root / ".github/workflows/kind.yml").read_text())["jobs"]["cluster"]["steps"]
    (given,) = (step["with"]["version"] for step in steps if "kind-action" in step.get("uses", ""))
    assert requested
    assert given == requested[1]
