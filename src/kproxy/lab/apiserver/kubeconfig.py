"""Kubeconfig of a proxy under test for the lab's API server. Pure.

Format: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

from __future__ import annotations

import base64

import yaml

_NAME = "kproxy-lab"


def kubeconfig(url: str, *, token: str | None = None, certificate_authority: bytes | None = None) -> str:
    """YAML for a client of the server at ``url``; ``certificate_authority`` in PEM, for https."""
    cluster = {"server": url}
    if certificate_authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(certificate_authority).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _NAME, "user": {"token": token} if token else {}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }
    return yaml.safe_dump(config, sort_keys=False)
