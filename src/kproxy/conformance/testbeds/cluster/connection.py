"""Connection to a cluster: a kubeconfig, or a pod's service account, as TLS, headers and connections.

Reading kubeconfigs, with their plugins and renewed tokens, is the `kubernetes` package's work (``kube-kproxy[cluster]``);
a service account is two files and two variables that the kubelet provides, and needs no package
(https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/).
Objects go by the lab's own store, agents' messages by aiohttp, since a thousand of them are under way at once.
"""

from __future__ import annotations

import http.client
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from kproxy.documents import syntax_error
from kproxy.lab.kube.store import PATIENCE, KubeStore
from kproxy.lab.namespaces import LabError
from kproxy.tls import client_context

MISSING = (
    "the package kubernetes is not installed, which reads kubeconfigs: pip install 'kube-kproxy[cluster]'"
)


class NoCluster(LabError):
    """No usable cluster; the message has the reason and the remedy."""


SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts ``token`` and ``ca.crt`` in a pod."""

IN_CLUSTER = "in-cluster"
"""Name of the context of a service account."""


@dataclass(frozen=True)
class ClusterConnection:
    """A cluster's API server; ``context``: its name in the kubeconfig.

    ``headers``: authorization headers, read for each request, since tokens are renewed.
    """

    url: str
    context: str
    tls: ssl.SSLContext | None
    headers: Callable[[], dict[str, str]]

    def store(self) -> KubeStore:
        """Store of its objects."""
        return KubeStore(self._connect, self.headers)

    def _connect(self) -> http.client.HTTPConnection:
        place = urlsplit(self.url)
        host, port = place.hostname or "", place.port
        if self.tls is None:
            return http.client.HTTPConnection(host, port, timeout=PATIENCE)
        return http.client.HTTPSConnection(host, port, timeout=PATIENCE, context=self.tls)


def connect_cluster(
    kubeconfig: str = "", context: str = "", account: Path = SERVICE_ACCOUNT
) -> ClusterConnection:
    """Cluster of a kubeconfig (default: ``$KUBECONFIG``, else the usual file) and context; in a pod without any, its own.

    Raises `NoCluster`.
    """
    if not (kubeconfig or context or os.environ.get("KUBECONFIG")) and os.environ.get(
        "KUBERNETES_SERVICE_HOST"
    ):
        return _own_cluster(os.environ, account)
    try:
        from kubernetes import client, config  # noqa: PLC0415 (an extra: only `conformance cluster` needs it)
    except ImportError as error:
        raise NoCluster(MISSING) from error
    found = client.Configuration()
    name = f"kubeconfig {kubeconfig or os.environ.get('KUBECONFIG') or '~/.kube/config'}"
    where = {"config_file": kubeconfig or None, "context": context or None}
    try:
        config.load_kube_config(**where, client_configuration=found)  # type: ignore[no-untyped-call]
        _, current = config.list_kube_config_contexts(kubeconfig or None)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        reason = str(error).removeprefix("Invalid kube-config file. ").rstrip(".")
        raise NoCluster(f"{name}: {reason}; give --kubeconfig FILE and --context NAME") from error
    except OSError as error:
        raise NoCluster(f"{name}: {error}") from error
    except yaml.YAMLError as error:
        raise NoCluster(f"{name}: neither YAML nor JSON: {syntax_error(error)}") from error
    headers = partial(_authorization, found)
    return ClusterConnection(found.host.rstrip("/"), context or current["name"], _tls(found), headers)


def _own_cluster(environment: Mapping[str, str], account: Path) -> ClusterConnection:
    """Cluster of the pod that this process runs in, by its service account."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    token = account / "token"
    try:
        token.read_bytes()
        tls = client_context(cafile=str(account / "ca.crt"))
    except OSError as error:
        raise NoCluster(
            f"the pod's service account: {error}; set automountServiceAccountToken, or give --kubeconfig FILE"
        ) from error
    bracketed = f"[{host}]" if ":" in host else host

    def headers() -> dict[str, str]:
        return {"Authorization": f"Bearer {token.read_text(encoding='ascii').strip()}"}

    return ClusterConnection(f"https://{bracketed}:{port}", IN_CLUSTER, tls, headers)


def _authorization(found: Any) -> dict[str, str]:  # noqa: ANN401 (the package has no types)
    given = [one["value"] for one in found.auth_settings().values() if one["value"]]
    if not given and found.username:
        given = [found.get_basic_auth_token()]
    return {"Authorization": given[0]} if given else {}


def _tls(found: Any) -> ssl.SSLContext | None:  # noqa: ANN401 (the package has no types)
    if not found.host.startswith("https:"):
        return None
    made = client_context(cafile=found.ssl_ca_cert)
    if not found.verify_ssl:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if found.cert_file:
        made.load_cert_chain(found.cert_file, found.key_file)
    return made
