"""kubeadm's ConfigMap and DaemonSet of kube-proxy, read for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MANIFESTS = Path(__file__).with_name("manifests") / "kubeadm.yaml"

_documents: dict[str, Any] = {each["kind"]: each for each in yaml.safe_load_all(MANIFESTS.read_text())}
_pod = _documents["DaemonSet"]["spec"]["template"]["spec"]
(_container,) = _pod["containers"]

FILES: dict[str, str] = _documents["ConfigMap"]["data"]
"""Contents of files by name, as mounted at `MOUNTED_AT`."""

MOUNTED_AT: str = next(
    mount["mountPath"] for mount in _container["volumeMounts"] if mount["name"] == "kube-proxy"
)


def arguments(node: str) -> list[str]:
    """Arguments of the program on this node."""
    (variable,) = (each["name"] for each in _container["env"] if "fieldRef" in each["valueFrom"])
    return [word.replace(f"$({variable})", node) for word in _container["command"][1:]]
