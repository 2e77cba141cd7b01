"""Service proxies as DaemonSets of the cluster: kproxy by the manifests of ``deploy/``, kube-proxy by one of our own.

Both get the same configuration but for what their manifests say. In a namespace that is not the machine's first, the size
of the connection tracking table cannot be written: both are told to leave it.
"""

from __future__ import annotations

import enum
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kproxy.lab.apiserver import kubeconfig
from kproxy.lab.cluster.control_plane import API_URL
from kproxy.lab.cluster.images import write_image
from kproxy.lab.cluster.layout import POD_NETWORK
from kproxy.lab.namespaces import LabError
from kproxy.model.network import Family

KUBE_PROXY_IMAGE = "kproxy.lab/kube-proxy:lab"
KPROXY_IMAGE = "kproxy:dev"
"""Name of the image in ``deploy/base`` and of `images.build`."""

DEFAULT_MODE = "nftables"
MODES = ("iptables", "ipvs", "nftables")

_PLACEHOLDER = "https://control-plane.example:6443"
_IN_POD = "/var/run/secrets/kubernetes.io/serviceaccount"

Document = dict[str, Any]


class ProxyName(enum.Enum):
    """Service proxy that a cluster starts with."""

    KPROXY = "kproxy"
    KUBE_PROXY = "kube-proxy"
    NONE = "none"


def proxy_documents(proxy: ProxyName, mode: str, kubectl: Path, deploy: Path) -> list[Document]:
    """Objects that install a proxy in a mode (empty: `DEFAULT_MODE`); ``deploy``: the folder of kproxy's manifests.

    Raises `LabError`.
    """
    mode = mode or DEFAULT_MODE
    if mode not in MODES:
        raise LabError(f"--mode {mode}: {proxy.value} has {', '.join(MODES)}")
    match proxy:
        case ProxyName.KPROXY:
            return kproxy_documents(mode, kubectl, deploy)
        case ProxyName.KUBE_PROXY:
            return kube_proxy_documents(mode)
        case ProxyName.NONE:
            return []


def kproxy_documents(mode: str, kubectl: Path, deploy: Path) -> list[Document]:
    """Objects of kproxy's overlay of this mode, with this cluster's addresses."""
    overlay = deploy / "overlays" / mode
    if not overlay.is_dir():
        raise LabError(f"there is no {overlay}: give the folder of kproxy's manifests with --deploy")
    argv = [str(kubectl), "kustomize", str(overlay)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"kubectl kustomize {overlay}: {done.stderr.strip()[-500:]}")
    documents: list[Document] = list(yaml.safe_load_all(done.stdout.replace(_PLACEHOLDER, API_URL)))
    for document in documents:
        if document["kind"] == "ConfigMap":
            data = document["data"]
            data["config.conf"] = yaml.safe_dump(_in_cluster(yaml.safe_load(data["config.conf"])))
    return documents


def _in_cluster(configuration: Mapping[str, Any]) -> Document:
    """A proxy's configuration with what is this cluster's."""
    pods = ",".join(str(POD_NETWORK[family]) for family in Family)
    return {**configuration, "clusterCIDR": pods, "conntrack": {"maxPerCore": 0, "min": 0}}


def kube_proxy_documents(mode: str) -> list[Document]:
    """Objects that install kube-proxy, as kubeadm does: a DaemonSet, its configuration, and its role."""
    configuration = _in_cluster(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": mode,
            "clientConnection": {"kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf"},
            "metricsBindAddress": "0.0.0.0:10249",
        }
    )
    config = yaml.safe_load(kubeconfig(API_URL))
    config["clusters"][0]["cluster"]["certificate-authority"] = f"{_IN_POD}/ca.crt"
    config["users"][0]["user"] = {"tokenFile": f"{_IN_POD}/token"}
    data = {"config.conf": yaml.safe_dump(configuration), "kubeconfig.conf": yaml.safe_dump(config)}
    inside = {"namespace": "kube-system", "name": "kube-proxy"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": inside},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "kproxy-lab:node-proxier"},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", **inside}],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": inside, "data": data},
        _kube_proxy_daemon_set(inside),
    ]


def _kube_proxy_daemon_set(metadata: Mapping[str, str]) -> Document:
    labels = {"k8s-app": "kube-proxy"}
    field = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    command = ["/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf"]
    container = {
        "name": "kube-proxy",
        "image": KUBE_PROXY_IMAGE,
        "imagePullPolicy": "Never",
        "command": [*command, "--hostname-override=$(NODE_NAME)"],
        "env": [{"name": "NODE_NAME", "valueFrom": field}],
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [
            {"name": "config", "mountPath": "/var/lib/kube-proxy"},
            {"name": "run", "mountPath": "/run"},
        ],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 10256}},
    }
    spec = {
        "serviceAccountName": "kube-proxy",
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": "kube-proxy"}},
            {"name": "run", "emptyDir": {"medium": "Memory"}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {**metadata, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def write_kube_proxy_image(program: Path, base: Path, file: Path) -> None:
    """Archive of kube-proxy on the layers of another one, which has the tools of the modes.  Raises `LabError`."""
    with tarfile.open(base) as archive:
        manifest = _member(archive, "manifest.json")
        layers = [_member(archive, path) for path in json.loads(manifest)[0]["Layers"]]
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as added:
        added.add(program.resolve(), "usr/local/bin/kube-proxy", recursive=False)
    write_image(file, [*layers, layer.getvalue()], {"User": "0"}, [KUBE_PROXY_IMAGE])


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise LabError(f"{archive.name!s} has no {name}: make it anew with `python -m images.build --output`")
    return file.read()
