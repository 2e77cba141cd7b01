"""The control plane's programs: a kube-apiserver with its etcd, the controllers and the scheduler, all real.

kube-controller-manager and kube-scheduler come from ``KUBEBUILDER_ASSETS`` as kube-apiserver does, or from PATH; setup-envtest
gives neither.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kproxy.lab.kube import KubeApiServer, MissingAssets, find_assets
from kproxy.lab.kube.assets import VARIABLE, Assets
from kproxy.lab.kube.server import PORT
from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.processes import spawn
from kproxy.model.network import Family
from tests.kind.standin import wires

HERE = f"127.0.0.1:{PORT}"
CONTROLLERS = (
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "serviceaccount-controller",
    "taint-eviction-controller",
)
_OTHERS = ("kube-controller-manager", "kube-scheduler", "kubectl")
NAMES = ("etcd", "kube-apiserver", *_OTHERS)
"""Names of all programs."""
_SERVERS = "https://dl.k8s.io/release/v1.36.2/bin/linux/amd64/"
_OF_THE_LAB = ("--service-node-port-range", "--advertise-address")


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of the programs."""

    server: Assets
    controller_manager: Path
    scheduler: Path
    kubectl: Path


def programs(environment: Mapping[str, str] = os.environ) -> Programs:
    """All programs of a stand-in cluster.  Raises `MissingAssets`, with what to do."""
    try:
        server = find_assets(environment)
    except MissingAssets as reason:
        raise MissingAssets(f"{reason}; put {' and '.join(_OTHERS[:2])} of {_SERVERS} beside them") from None
    path = f"{environment[VARIABLE]}:{environment.get('PATH', os.defpath)}"
    found = {name: shutil.which(name, path=path) for name in _OTHERS}
    if missing := [name for name, place in found.items() if place is None]:
        raise MissingAssets(
            f"there is no {', no '.join(missing)} in {environment[VARIABLE]} ({VARIABLE}) or on PATH: "
            f"put that of {_SERVERS} there"
        )
    return Programs(server, *(Path(str(found[name])) for name in _OTHERS))


class ControlPlane(KubeApiServer):
    """All of them, in the namespace of the API server."""

    def __init__(self, found: Programs, directory: Path) -> None:
        super().__init__(found.server, directory)
        self._programs = found

    @property
    def namespace(self) -> Namespace:
        """The namespace that they run in."""
        return self._namespace

    @property
    def certificates(self) -> Path:
        """The folder with its own pair."""
        return self._directory / "certificates"

    @property
    def credentials(self) -> tuple[str, bytes]:
        """What a client needs besides the address: token and authority (PEM)."""
        return self._token, self._authority

    def start_others(self) -> None:
        """Those that are clients of the API server."""
        config = self._directory / "kubeconfig"
        config.write_text(self.kubeconfig(HERE))
        common = (f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0")
        fast = ("--kube-api-qps=100", "--kube-api-burst=200")
        chosen = f"--controllers={','.join(CONTROLLERS)}"
        manager = [str(self._programs.controller_manager), *common, *fast, chosen]
        self._start(manager, "kube-controller-manager")
        self._start([str(self._programs.scheduler), *common, *fast], "kube-scheduler")

    def check(self) -> None:
        """Raise `LabError`, with the end of its log, if one has ended by itself."""
        if ended := next((process for process in self._processes if process.returncode is not None), None):
            raise LabError(f"{Path(ended.argv[0]).name} has ended: {self._tail(ended)}")

    async def restart_apiserver(self) -> None:
        """Kill the API server, start it again, and wait until it serves."""
        number = next(
            n for n, p in enumerate(self._processes) if p.argv[0] == str(self._assets.kube_apiserver)
        )
        old = self._processes[number]
        old.kill()
        await old.wait()
        self._processes[number] = spawn(old.argv, self._namespace, log=old.log)
        await self._serving()

    def _apiserver_arguments(self) -> list[str]:
        arguments = [word for word in super()._apiserver_arguments() if not word.startswith(_OF_THE_LAB)]
        address = wires.node_address(wires.CONTROL_PLANE, Family.IPV4)
        return [*arguments, f"--advertise-address={address}", "--kubelet-preferred-address-types=InternalIP"]
