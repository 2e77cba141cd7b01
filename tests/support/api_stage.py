"""A namespace with an API server and a daemon that reads it by a kubeconfig of the test's own."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import yaml

from kproxy.conformance.binding.lab_objects import node_documents, service_cidr_document
from kproxy.conformance.case import DEFAULT
from kproxy.conformance.subjects.configuration import NodeConfiguration, kube_proxy_configuration
from kproxy.conformance.testbeds.sentinel import Sentinel
from kproxy.lab import namespaces
from kproxy.lab.apiserver import ApiServer, ResourceKind
from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.processes import Process, run_in, spawn
from kproxy.model.network import Family

PORT = 6443


ADDRESS = ip_address("127.0.0.1")


WITHIN = 15.0
"""Seconds; a lost connection is tried again after 10 s at most."""


@dataclass
class ApiStage:
    """A namespace with an API server and, after `start`, a daemon, in nftables mode by `start`."""

    namespace: Namespace
    server: ApiServer
    folder: Path
    daemon: Process | None = None
    listing: tuple[str, ...] = ("nft", "list", "table", "ip", "kube-proxy")
    """The command that shows its rules."""

    def start(
        self,
        *,
        user: dict[str, object],
        cluster: dict[str, object],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        kubeconfig, config = self.folder / "kubeconfig", self.folder / "config.yaml"
        document = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": cluster}],
            "users": [{"name": "x", "user": user}],
        }
        kubeconfig.write_text(yaml.safe_dump(document))
        place = NodeConfiguration(node="a", mode="nftables", kubeconfig=str(kubeconfig))
        config.write_text(kube_proxy_configuration(DEFAULT, place))
        arguments = [sys.executable, "-m", "kproxy", "run", "--config", str(config)]
        self.daemon = spawn(arguments, self.namespace, log=self.folder / "log", env=environment)

    async def follows(self, number: int) -> None:
        """Whether a new Service comes to the kernel."""
        sentinel = Sentinel(number)
        for document in sentinel.documents:
            self.server.store.put(ResourceKind(document["kind"]), document)
        await self.becomes(lambda listed: str(sentinel.cluster_ip(Family.IPV4)) in listed)

    async def becomes(self, so: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + WITHIN
        while not so(await self.table()):
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]
            await asyncio.sleep(0.05)

    async def table(self) -> str:
        try:
            return await run_in(self.namespace, self.listing)
        except LabError:
            return ""

    def tokens(self) -> list[str]:
        return [request.headers.get("Authorization", "") for request in self.server.requests]


@asynccontextmanager
async def open_api_stage() -> AsyncIterator[ApiStage]:
    namespace = namespaces.create_namespace("api")
    namespace.run(("ip", "link", "set", "lo", "up"))
    with tempfile.TemporaryDirectory(prefix="kproxy-api-") as name:
        async with ApiServer() as server:
            for document in (*node_documents(), service_cidr_document()):
                server.store.put(ResourceKind(document["kind"]), document)
            made = ApiStage(namespace, server, Path(name))
            try:
                yield made
            finally:
                if made.daemon is not None:
                    made.daemon.kill()
                    await made.daemon.wait()
                namespace.close()
