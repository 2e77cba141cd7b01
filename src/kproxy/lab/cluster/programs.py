"""Programs of a cluster: Kubernetes' from a folder, those of the distribution from PATH.

All that is missing is named at once, each with its remedy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from kproxy.lab.kube.assets import VARIABLE, MissingAssets

CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
CNI_PLUGINS = ("ptp", "host-local", "portmap", "loopback")
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
"""Programs that Kubernetes releases."""

_PACKAGES = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "openssl": "openssl",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
_CNI_REMEDY = "apt-get install containernetworking-plugins"


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of the programs."""

    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubelet: Path
    kubectl: Path
    etcd: Path
    containerd: Path
    ctr: Path
    runc: Path
    openssl: Path
    nsenter: Path
    unshare: Path
    cni: Path
    """The folder of the plugins."""


def find_programs(folder: Path | None, environment: Mapping[str, str] = os.environ) -> Programs:
    """All programs of a cluster; ``folder``: of Kubernetes' programs, None for ``KUBEBUILDER_ASSETS``.

    Raises `MissingAssets`, which lists what is missing.
    """
    folder = folder or (Path(environment[VARIABLE]) if environment.get(VARIABLE) else None)
    path = f"{environment.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    names = [field.name.replace("_", "-") for field in fields(Programs) if field.name != "cni"]
    found = {name: _find(name, folder, path) for name in names}
    plugins = next((Path(place) for place in CNI_FOLDERS if _has_plugins(Path(place))), None)
    missing = [*_missing(found, folder), *([] if plugins else [f"CNI plugins: {_CNI_REMEDY}"])]
    if missing or plugins is None:
        raise MissingAssets("a cluster needs what is not here:\n  " + "\n  ".join(missing))
    paths = {name.replace("-", "_"): Path(place) for name, place in found.items() if place}
    return Programs(cni=plugins, **paths)


def _find(name: str, folder: Path | None, path: str) -> str | None:
    """A program; Kubernetes' own are not taken from PATH, where they may be of any version."""
    if name in KUBERNETES:
        return shutil.which(name, path=str(folder)) if folder else None
    return shutil.which(name, path=f"{folder}:{path}" if folder else path)


def _has_plugins(folder: Path) -> bool:
    return all((folder / plugin).exists() for plugin in CNI_PLUGINS)


def _missing(found: Mapping[str, str | None], folder: Path | None) -> Iterator[str]:
    lacking = [name for name, place in found.items() if place is None]
    kubernetes = [name for name in lacking if name in KUBERNETES]
    if kubernetes:
        where = f"in {folder}" if folder else f"(give --assets, or set {VARIABLE})"
        yield f"{', '.join(kubernetes)} {where}: `kproxy lab cluster fetch` gets them from the release site"
    for name in lacking:
        if name not in KUBERNETES:
            yield f"{name}: apt-get install {_PACKAGES[name]}"
