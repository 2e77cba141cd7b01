"""A cluster of real kubelets on this machine (`kproxy.lab.cluster`), with kproxy's DaemonSet or another proxy's.

Two nodes take pods; the third, as a control plane does, takes only those that tolerate it.  All lives in a thread with an
event loop of its own, so that tests may block.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kproxy.conformance.testbeds.cluster.agent import KEY
from kproxy.conformance.testbeds.cluster.pods import MODULE
from kproxy.conformance.testbeds.cluster.pods import PORT as AGENTS_PORT
from kproxy.lab.cluster.cluster import LabCluster
from kproxy.lab.cluster.command import DEPLOY, ClusterUpOptions, cluster_spec, install_proxy
from kproxy.lab.cluster.layout import OUTSIDE
from kproxy.lab.cluster.service_proxy import KPROXY_IMAGE, ProxyName, proxy_documents
from kproxy.lab.processes import spawn
from kproxy.model.network import Family
from tests.kind.cluster import Cluster

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

    @contextmanager
    def agents_outside(self, key: str, folder: Path) -> Iterator[dict[str, str]]:
        """The cluster testbed's agents on clients outside: their URLs, for a process in the switch's namespace."""
        with ExitStack() as stack:
            urls = {}
            for number, name in enumerate(OUTSIDE, 101):
                arguments = [sys.executable, "-m", MODULE, name, str(number), str(AGENTS_PORT)]
                log, namespace = folder / f"{name}.log", self.lab.network[name]
                process = spawn(arguments, namespace, log=log, env={**os.environ, KEY: key})
                stack.callback(self._do, process.wait())
                stack.callback(process.kill)
                address = self.lab.spec.layout.outside_address(name, 0, Family.IPV4)
                urls[name] = f"http://{address}:{AGENTS_PORT}"
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
