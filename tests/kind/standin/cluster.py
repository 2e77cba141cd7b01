"""Stand-in for a cluster: real etcd, kube-apiserver, controllers and scheduler on one machine.

Three nodes are network namespaces, with stand-in kubelets that run pods' commands as processes (`tests.kind.standin.kubelet`);
the service proxy of the two workers is started as the lab starts it.  All lives in a thread with an event loop of its
own, so that tests may block.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kproxy.conformance.case import DEFAULT
from kproxy.conformance.subjects.subject import Subject, load_subject
from kproxy.conformance.testbeds.cluster.agent import KEY
from kproxy.conformance.testbeds.cluster.pods import MODULE
from kproxy.conformance.testbeds.cluster.pods import PORT as AGENTS_PORT
from kproxy.conformance.testbeds.proxies import API_ADDRESS, NodeIdentity, Proxies
from kproxy.lab.kube.relay import Relay
from kproxy.lab.kube.server import PORT
from kproxy.lab.namespaces import Namespace
from kproxy.lab.network import Network, build_network
from kproxy.lab.processes import Xtables, listen_in, spawn
from kproxy.model.network import Family
from tests.kind.cluster import Cluster
from tests.kind.standin import wires
from tests.kind.standin.kubelet import kubelet
from tests.kind.standin.programs import ControlPlane, Programs, programs

NO_IMAGE = "none"
IDENTITIES = {
    node: NodeIdentity(
        node,
        str(wires.node_address(node, Family.IPV4)),
        tuple(str(pods) for pods in wires.POD_RANGES.values()),
    )
    for node in wires.WORKERS
}


@dataclass(frozen=True, slots=True)
class StandIn(Cluster):
    """A running stand-in cluster."""

    server: ControlPlane
    proxies: Proxies
    loop: asyncio.AbstractEventLoop
    network: Network

    @contextmanager
    def agents_outside(self, key: str, folder: Path) -> Iterator[dict[str, str]]:
        """The cluster testbed's agents on clients outside: their URLs."""
        with ExitStack() as stack:
            urls = {}
            for number, name in enumerate(wires.OUTSIDE, 101):
                arguments = [sys.executable, "-m", MODULE, name, str(number), str(AGENTS_PORT)]
                log = folder / f"{name}.log"
                process = spawn(arguments, self.network[name], log=log, env={**os.environ, KEY: key})
                stack.callback(self._do, process.wait())
                stack.callback(process.kill)
                relay, here = Relay(self.network[name], AGENTS_PORT), socket.create_server(("127.0.0.1", 0))
                self._do(relay.listen(here))
                stack.callback(self._do, relay.close())
                urls[name] = f"http://127.0.0.1:{here.getsockname()[1]}"
            yield urls

    def restart_proxies(self) -> None:
        for node in wires.WORKERS:
            self._do(self._restart_proxy(node))

    def restart_apiserver(self) -> None:
        self._do(self.server.restart_apiserver())

    @contextmanager
    def proxies_stopped(self) -> Iterator[None]:
        """Context in which the proxies are stopped (SIGSTOP); their rules stay."""
        groups = [self.proxies.pid(node) for node in wires.WORKERS]
        for group in groups:
            os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            for group in groups:
                os.killpg(group, signal.SIGCONT)

    async def _restart_proxy(self, node: str) -> None:
        await self.proxies.kill(node)
        self.proxies.start(node)

    def _do(self, doing: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(doing, self.loop).result()


@contextmanager
def standin_cluster(mode: str, subject: Subject | None = None) -> Iterator[StandIn]:
    """One with a service proxy (kproxy) in this mode; nothing of it is left afterwards.

    Raises `kproxy.lab.namespaces.LabError` when something is missing, or at last when one of its programs had ended.
    """
    found = programs()
    with tempfile.TemporaryDirectory(prefix="kproxy-cluster-") as name, ThreadPoolExecutor(1) as threads:
        opened, closing = Future[StandIn](), Future[None]()

        async def hold() -> None:
            try:
                async with _opened(mode, subject or load_subject("kproxy"), found, Path(name)) as cluster:
                    opened.set_result(cluster)
                    await asyncio.wrap_future(closing)
            except BaseException as error:
                if opened.done():
                    raise
                opened.set_exception(error)

        ended = threads.submit(lambda: asyncio.run(hold()))
        try:
            cluster = opened.result()
            cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")
            yield cluster
        finally:
            closing.set_result(None)
            ended.result()


@asynccontextmanager
async def _opened(mode: str, subject: Subject, found: Programs, folder: Path) -> AsyncIterator[StandIn]:
    async with AsyncExitStack() as stack:
        server = ControlPlane(found, folder / "control-plane")
        stack.push_async_callback(server.close)
        room = Namespace(wires.CONTROL_PLANE, os.dup(server.namespace.descriptor))
        network = stack.enter_context(build_network(wires.StandInWiring(), {wires.CONTROL_PLANE: room}))
        await stack.enter_async_context(server)
        server.start_others()
        here = socket.create_server(("127.0.0.1", 0))
        await server.listen(
            [here, listen_in(room, wires.node_address(wires.CONTROL_PLANE, Family.IPV4), PORT)]
        )
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig(f"127.0.0.1:{here.getsockname()[1]}"))
        proxies = Proxies(network, subject, mode, DEFAULT, Xtables.NFT, folder)
        proxies.nodes = IDENTITIES
        stack.push_async_callback(proxies.kill_all)
        await proxies.start_all(server)
        where = (server.url(API_ADDRESS), *server.credentials)
        for node in wires.NODES:
            home = folder / f"pods-of-{node}"
            home.mkdir()
            await stack.enter_async_context(kubelet(node, network[node], where, server.certificates, home))
        yield StandIn(
            kubeconfig,
            wires.CONTROL_PLANE,
            wires.WORKERS,
            str(found.kubectl),
            NO_IMAGE,
            server,
            proxies,
            asyncio.get_running_loop(),
            network,
        )
        server.check()
        proxies.check()
