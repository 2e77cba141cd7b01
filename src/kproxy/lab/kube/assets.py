"""Paths of etcd and kube-apiserver."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kproxy.lab.namespaces import LabError

VARIABLE = "KUBEBUILDER_ASSETS"


class MissingAssets(LabError):
    """Missing program; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Assets:
    """Paths of the two programs."""

    etcd: Path
    kube_apiserver: Path


def find_assets(environment: Mapping[str, str] = os.environ) -> Assets:
    """Programs in the folder that ``KUBEBUILDER_ASSETS`` names; etcd may be any on PATH.

    Raises `MissingAssets`.
    """
    folder = environment.get(VARIABLE, "")
    if not folder:
        raise MissingAssets(
            f"{VARIABLE} is not set: it names the folder of a kube-apiserver; `setup-envtest use -p env` gives both"
        )
    path = f"{folder}:{environment.get('PATH', os.defpath)}"
    apiserver = shutil.which("kube-apiserver", path=folder)
    etcd = shutil.which("etcd", path=path)
    if apiserver is None:
        raise MissingAssets(f"there is no kube-apiserver in {folder} ({VARIABLE})")
    if etcd is None:
        raise MissingAssets(f"there is no etcd in {folder} or on PATH: apt-get install etcd-server")
    return Assets(Path(etcd), Path(apiserver))
