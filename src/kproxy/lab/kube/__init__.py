"""A real etcd and kube-apiserver in place of `kproxy.lab.apiserver`, in a network namespace of their own.

    assets --> server: the two processes --> store: objects in; relay: nodes reach it on loopback

Programs come from ``KUBEBUILDER_ASSETS``, as `setup-envtest` of Kubernetes' controller-runtime lays them down.
"""

from kproxy.lab.kube.assets import MissingAssets, find_assets
from kproxy.lab.kube.server import KubeApiServer
from kproxy.lab.kube.store import NotAdmitted

__all__ = ["KubeApiServer", "MissingAssets", "NotAdmitted", "find_assets"]
