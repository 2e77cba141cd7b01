"""A cluster of real kubelets on this machine (`kproxy.lab.cluster`), with kproxy's DaemonSet or another proxy's.

Two nodes take pods; the third, as a control plane does, takes only those that tolerate it.  All lives in a thread with an
event loop of its own, so that tests may block.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml

from kproxy.conformance.testbeds.cluster.agent import KEY
from kproxy.conformance.testbeds.cluster.pods import MODULE
from kproxy.conformance.testbeds.cluster.pods import PORT as AGENTS_PORT
from kproxy.lab.cluster.cluster import LabCluster
from kproxy.lab.cluster.command import DEPLOY, ClusterUpOptions, cluster_spec, install_proxy
from kproxy.lab.cluster.layout import OUTSIDE
from kproxy.lab.cluster.service_proxy import KPROXY_IMAGE, ProxyName, proxy_documents
from kproxy.lab.kube.relay import Relay
from kproxy.lab.processes import spawn
from tests.kind.cluster import Cluster

PROXY_ARGUMENT = "--config=/var/lib/kube-proxy/config.conf"
"""Of kproxy's DaemonSet."""
_FREE_SECONDS = 60.0
CONTROL_PLANE_TAINT = "node-role.kubernetes.io/control-plane=:NoSchedule"


@dataclass(frozen=True, slots=True)
class LocalCluster(Cluster):
    """A running cluster of this machine's."""

    lab: LabCluster
    loop: asyncio.AbstractEventLoop
    daemon_set: str

    def restart_proxies(self) -> None:
        self.kubectl("-n", "kube-system", "rollout", "restart", f"daemonset/{self.daemon_set}")
        self.rolled_out(f"daemonset/{self.daemon_set}", "kube-system")

    def restart_apiserver(self) -> None:
        self._do(self.lab.restart_apiserver())

    def reboot(self, node: str) -> None:
        """Reboot a node; returns while it starts."""
        self._do(self.lab.reboot(node))

    @contextmanager
    def proxies_stopped(self) -> Iterator[None]:
        """Context in which kproxy is stopped on all nodes (SIGSTOP); its rules stay."""
        stopped = [pid for node in self.lab.nodes for pid in self.lab.processes(node, PROXY_ARGUMENT)]
        assert len(stopped) == len(self.lab.nodes)
        try:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)

    @contextmanager
    def configured(self, change: Mapping[str, Any]) -> Iterator[None]:
        """Context in which kproxy runs with other values of its configuration's fields."""
        before = self._configuration()
        try:
            self._configure({**before, **change})
            yield
        finally:
            self._configure(before)

    def _configuration(self) -> dict[str, Any]:
        found = self.kubectl("-n", "kube-system", "get", f"configmap/{self.daemon_set}", "-o", "json")
        configuration: dict[str, Any] = yaml.safe_load(json.loads(found)["data"]["config.conf"])
        return configuration

    def _configure(self, configuration: Mapping[str, Any]) -> None:
        patch = json.dumps({"data": {"config.conf": yaml.safe_dump(dict(configuration))}})
        self.kubectl("-n", "kube-system", "patch", f"configmap/{self.daemon_set}", "-p", patch)
        self.restart_proxies()

    def next_pod_has(self, node: str, address: str) -> None:
        """Have a node give this IPv4 address to its next pod, once it is free: host-local takes the one after its last."""
        records = self.lab.node_folder(node) / "lib/cni/networks/kproxy-lab"
        deadline = time.monotonic() + _FREE_SECONDS
        while (records / address).exists():  # the sandbox of its last pod goes after the pod itself
            assert time.monotonic() < deadline, f"{address} is still {(records / address).read_text()}"
            time.sleep(0.1)
        (records / "last_reserved_ip.0").write_text(str(ip_address(address) - 1))

    @contextmanager
    def agents_outside(self, key: str, folder: Path) -> Iterator[dict[str, str]]:
        """The cluster testbed's agents on clients outside: their URLs, on this machine's loopback."""
        with ExitStack() as stack:
            urls = {}
            for number, name in enumerate(OUTSIDE, 101):
                arguments = [sys.executable, "-m", MODULE, name, str(number), str(AGENTS_PORT)]
                log, namespace = folder / f"{name}.log", self.lab.network[name]
                process = spawn(arguments, namespace, log=log, env={**os.environ, KEY: key})
                stack.callback(self._do, process.wait())
                stack.callback(process.kill)
                relay, here = Relay(namespace, AGENTS_PORT), socket.create_server(("127.0.0.1", 0))
                self._do(relay.listen(here))
                stack.callback(self._do, relay.close())
                urls[name] = f"http://127.0.0.1:{here.getsockname()[1]}"
            yield urls

    def _do(self, doing: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(doing, self.loop).result()


def options(mode: str, proxy: ProxyName = ProxyName.KPROXY, nodes: int = 3) -> ClusterUpOptions:
    """Options of a test's cluster: programs of ``KUBEBUILDER_ASSETS``, manifests of this clone."""
    return ClusterUpOptions(
        nodes=nodes, assets=None, proxy=proxy.value, mode=mode, deploy=DEPLOY, name="tests"
    )


@contextmanager
def local_cluster(mode: str, proxy: ProxyName = ProxyName.KPROXY) -> Iterator[LocalCluster]:
    """One with a service proxy in this mode; nothing of it is left afterwards.

    Raises `kproxy.lab.namespaces.LabError` when something is missing, or at last when one of its programs had ended.
    """
    order = options(mode, proxy)
    spec = cluster_spec(order)
    with ThreadPoolExecutor(1) as threads:
        opened, closing = Future[tuple[LabCluster, asyncio.AbstractEventLoop]](), Future[None]()

        async def hold() -> None:
            try:
                async with LabCluster(spec) as lab:
                    opened.set_result((lab, asyncio.get_running_loop()))
                    await asyncio.wrap_future(closing)
                    lab.check()
            except BaseException as error:
                if opened.done():
                    raise
                opened.set_exception(error)

        ended = threads.submit(lambda: asyncio.run(hold()))
        try:
            lab, loop = opened.result()
            documents = proxy_documents(proxy, mode, spec.programs.kubectl, order.deploy)
            if documents:
                install_proxy(lab, proxy.value, documents)
            first, second, third = lab.nodes
            lab.kubectl("taint", "node", third, CONTROL_PLANE_TAINT)
            lab.kubectl("label", "node", third, CONTROL_PLANE_TAINT.partition("=")[0] + "=")
            kubectl = str(spec.programs.kubectl)
            yield LocalCluster(
                lab.kubeconfig, third, (first, second), kubectl, KPROXY_IMAGE, lab, loop, proxy.value
            )
        finally:
            closing.set_result(None)
            ended.result()
