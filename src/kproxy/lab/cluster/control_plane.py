"""Command lines of the control plane's programs.  Pure but for the files that it writes beside them.

Settings that differ from a program's defaults have their reason here: https://kubernetes.io/docs/reference/command-line-tools-reference/
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kproxy.lab.apiserver import kubeconfig
from kproxy.lab.cluster.credentials import ADMIN, MANAGER, SCHEDULER, Credentials
from kproxy.lab.cluster.layout import (
    API_PORT,
    POD_NETWORK,
    SERVICE_NETWORK,
    ClusterLayout,
    control_plane_address,
)
from kproxy.lab.cluster.programs import Programs
from kproxy.model.network import Family

ETCD_URL = "http://127.0.0.1:2379"
API_URL = f"https://{control_plane_address(Family.IPV4)}:{API_PORT}"
"""The API server as nodes and pods of the host's network reach it, which no service proxy need serve."""

_BOTH = tuple(Family)
_FAST = ("--kube-api-qps=100", "--kube-api-burst=200")
"""A controller's default of 20 requests a second makes rolling updates of a whole test suite wait."""
_FOUND = ("--leader-elect=false", "--secure-port=0")


def write_kubeconfig(file: Path, url: str, user: str, credentials: Credentials) -> Path:
    """Kubeconfig of a user for the API server at ``url``; returns the file."""
    authority = credentials.authority.read_bytes()
    file.write_text(kubeconfig(url, token=credentials.tokens[user], certificate_authority=authority))
    file.chmod(0o600)
    return file


def etcd_arguments(programs: Programs, folder: Path) -> list[str]:
    """Etcd of one member; nothing of it has to outlive the machine, so it does not wait for the disk."""
    urls = (f"--listen-client-urls={ETCD_URL}", f"--advertise-client-urls={ETCD_URL}")
    peers = ("--listen-peer-urls=http://127.0.0.1:2380",)
    return [str(programs.etcd), f"--data-dir={folder / 'etcd'}", *urls, *peers, "--unsafe-no-fsync"]


def apiserver_arguments(programs: Programs, credentials: Credentials) -> list[str]:
    """kube-apiserver; privileged pods are allowed, as service proxies need them."""
    ranges = ",".join(str(SERVICE_NETWORK[family]) for family in _BOTH)
    accounts = credentials.key("service-account")
    return [
        str(programs.kube_apiserver),
        f"--etcd-servers={ETCD_URL}",
        f"--service-cluster-ip-range={ranges}",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--token-auth-file={credentials.token_file}",
        f"--client-ca-file={credentials.authority}",
        f"--tls-cert-file={credentials.certificate('apiserver')}",
        f"--tls-private-key-file={credentials.key('apiserver')}",
        f"--kubelet-client-certificate={credentials.certificate('kubelet-client')}",
        f"--kubelet-client-key={credentials.key('kubelet-client')}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={accounts}",
        f"--service-account-signing-key-file={accounts}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--advertise-address={control_plane_address(Family.IPV4)}",
        f"--secure-port={API_PORT}",
        "--endpoint-reconciler-type=lease",
    ]


def client_arguments(programs: Programs, folder: Path, credentials: Credentials) -> dict[str, list[str]]:
    """Controllers and scheduler by name; their kubeconfigs are written to ``folder``."""
    users = {"kube-controller-manager": MANAGER, "kube-scheduler": SCHEDULER}
    url = f"https://127.0.0.1:{API_PORT}"
    files = {
        name: write_kubeconfig(folder / f"{name}.kubeconfig", url, user, credentials)
        for name, user in users.items()
    }
    pods = ",".join(str(POD_NETWORK[family]) for family in _BOTH)
    manager = (
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={credentials.key('service-account')}",
        f"--root-ca-file={credentials.authority}",
        f"--cluster-cidr={pods}",
        "--allocate-node-cidrs=false",
    )
    programs_of = {
        "kube-controller-manager": programs.kube_controller_manager,
        "kube-scheduler": programs.kube_scheduler,
    }
    own: Mapping[str, tuple[str, ...]] = {"kube-controller-manager": manager, "kube-scheduler": ()}
    return {
        name: [str(programs_of[name]), f"--kubeconfig={file}", *_FOUND, *_FAST, *own[name]]
        for name, file in files.items()
    }


def admin_kubeconfig(file: Path, port: int, credentials: Credentials) -> Path:
    """Kubeconfig of an administrator who reaches the API server on this machine's loopback."""
    return write_kubeconfig(file, f"https://127.0.0.1:{port}", ADMIN, credentials)


def registered_nodes(layout: ClusterLayout) -> list[dict[str, Any]]:
    """Node objects as a cloud's controllers would complete them: with pod ranges, before the kubelets register."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node, "labels": {"topology.kubernetes.io/zone": layout.zone(node)}},
            "spec": {
                "podCIDR": str(layout.pod_range(node, Family.IPV4)),
                "podCIDRs": [str(layout.pod_range(node, family)) for family in _BOTH],
            },
        }
        for node in layout.nodes
    ]
