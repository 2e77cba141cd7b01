"""The plugin of Sonobuoy in a pod as Sonobuoy makes it, with a worker of ours beside it; Sonobuoy itself is not there."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml

from kproxy.conformance.testbeds.cluster.sonobuoy import DEFAULT_RESULTS
from tests.kind.cluster import Cluster
from tests.kind.load import container
from tests.kind.providers import LOCAL
from tests.support.paths import ROOT
from tests.support.waiting import eventually

pytestmark = pytest.mark.parametrize("cluster", LOCAL[:1], indirect=True)

NAMESPACE, ACCOUNT = "sonobuoy", "sonobuoy-serviceaccount"
WORKER = f"""
import base64, pathlib, time
done = pathlib.Path("{DEFAULT_RESULTS}/done")
while not done.exists():
    time.sleep(0.2)
print(base64.b64encode(pathlib.Path(done.read_text()).read_bytes()).decode())
"""
"""Sonobuoy's worker sends the file that ``done`` names to the aggregator; this one prints it."""


def documents(image: str, *arguments: str) -> list[dict[str, Any]]:
    """Namespace, rights and pod as Sonobuoy makes them of the definition."""
    plugin = yaml.safe_load((ROOT / "deploy/sonobuoy/kproxy.yaml").read_text())["spec"]
    env = [
        {"name": "KPROXY_PROXY", "value": "kproxy"},
        {"name": "KPROXY_MODE", "value": "nftables"},
        {"name": "KPROXY_AGENT_IMAGE", "value": image},
    ]
    plugin |= {"image": image, "env": env, "args": [*plugin["args"], *arguments]}
    worker = {**container(image, WORKER), "name": "sonobuoy-worker", "volumeMounts": plugin["volumeMounts"]}
    spec = {
        "serviceAccountName": ACCOUNT,
        "restartPolicy": "Never",
        "containers": [plugin, worker],
        "volumes": [{"name": "results", "emptyDir": {}}],
    }
    named = {"namespace": NAMESPACE, "name": ACCOUNT}
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", **named}],
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": NAMESPACE, "name": "plugin"},
            "spec": spec,
        },
    ]


def test_the_plugin_judges_its_own_cluster_and_hands_over_junit(cluster: Cluster) -> None:
    allowed = "--allow-production"  # pods of the test before may still be ending in `default`
    cluster.apply(*documents(cluster.image, allowed, "--case=cluster-ip.every-endpoint-of-six"))

    def phase() -> str:
        found = json.loads(cluster.kubectl("-n", NAMESPACE, "get", "pod/plugin", "-o", "json"))
        return str(found["status"].get("phase"))

    ended = eventually(lambda: phase() in {"Succeeded", "Failed"}, 120, 1)
    logs = cluster.kubectl("-n", NAMESPACE, "logs", "plugin", "-c", "plugin")
    assert ended, logs
    sent = base64.b64decode(cluster.kubectl("-n", NAMESPACE, "logs", "plugin", "-c", "sonobuoy-worker"))
    with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
        assert "results.json" in archive.getnames(), logs
        files = {name: archive.extractfile(name) for name in ("junit.xml", "results.json")}
        texts = {name: file.read() for name, file in files.items() if file}
    (suite,) = JUnitXml.fromroot(JUnitXml.fromstring(texts["junit.xml"])._elem)
    assert [test.name for test in suite] == ["every-endpoint-of-six"]
    assert (suite.failures, suite.errors, suite.skipped) == (0, 0, 0)
    assert json.loads(texts["results.json"])["environment"]["context"] == "in-cluster"
    assert phase() == "Succeeded", logs
