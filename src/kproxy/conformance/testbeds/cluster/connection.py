"""Connection to a cluster: a kubeconfig as TLS, headers and connections.

Reading kubeconfigs, with their plugins and renewed tokens, is the `kubernetes` package's work (``kube-kproxy[cluster]``);
objects go by the lab's own store, agents' messages by aiohttp, since a thousand of them are under way at once.
"""

from __future__ import annotations

import http.client
import os
import ssl
from dataclasses import dataclass
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


@dataclass(frozen=True)
class ClusterConnection:
    """A cluster's API server; ``context``: its name in the kubeconfig."""

    url: str
    context: str
    tls: ssl.SSLContext | None
    configuration: Any

    def headers(self) -> dict[str, str]:
        """Authorization headers, read for each request, since tokens are renewed."""
        given = [one["value"] for one in self.configuration.auth_settings().values() if one["value"]]
        if not given and self.configuration.username:
            given = [self.configuration.get_basic_auth_token()]
        return {"Authorization": given[0]} if given else {}

    def store(self) -> KubeStore:
        """Store of its objects."""
        return KubeStore(self._connect, self.headers)

    def _connect(self) -> http.client.HTTPConnection:
        place = urlsplit(self.url)
        host, port = place.hostname or "", place.port
        if self.tls is None:
            return http.client.HTTPConnection(host, port, timeout=PATIENCE)
        return http.client.HTTPSConnection(host, port, timeout=PATIENCE, context=self.tls)


def connect_cluster(kubeconfig: str = "", context: str = "") -> ClusterConnection:
    """Cluster of a kubeconfig (default: ``$KUBECONFIG``, else the usual file) and context. Raises `NoCluster`."""
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
    return ClusterConnection(found.host.rstrip("/"), context or current["name"], _tls(found), found)


def _tls(found: Any) -> ssl.SSLContext | None:  # noqa: ANN401 (the package has no types)
    if not found.host.startswith("https:"):
        return None
    made = client_context(cafile=found.ssl_ca_cert)
    if not found.verify_ssl:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if found.cert_file:
        made.load_cert_chain(found.cert_file, found.key_file)
    return made
