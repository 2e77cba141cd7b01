"""A lab with a daemon on node a, and what load balancers and scrapers find at its ports."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from kproxy.conformance.binding.lab_objects import node_documents, service_cidr_document
from kproxy.conformance.case import DEFAULT
from kproxy.conformance.subjects.configuration import NodeConfiguration, kube_proxy_configuration
from kproxy.lab.apiserver import ApiServer, ResourceKind, kubeconfig
from kproxy.lab.lab import Lab, open_lab
from kproxy.lab.namespaces import Namespace
from kproxy.lab.processes import Process, Xtables, listen_in, run_in, spawn, xtables_directory
from kproxy.lab.topology import LAB
from kproxy.model.network import Address, Family

API_PORT, HEALTH_PORT, METRICS_PORT = 6443, 10256, 10249


CHECK_PORT, OTHER_CHECK_PORT = 31000, 31001


LOOPBACK = LAB.local_addresses("a", Family.IPV4)[-1]


MODES = ("iptables", "nftables")


WITHIN = 30.0
"""Seconds a change may take to show; on an idle machine it is some 0.05 s."""


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


def fetch(namespace: Namespace, address: Address, port: int, path: str = "/", patience: float = 5.0) -> Reply:
    """GET from inside a namespace; raises `OSError`."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    connected = namespace.socket(family, socket.SOCK_STREAM)
    with connected:
        connected.settimeout(patience)
        connected.connect((str(address), port))
        connection = HTTPConnection(str(address), port)
        connection.sock = connected
        connection.request("GET", path)
        response = connection.getresponse()
        return Reply(response.status, dict(response.headers), response.read().decode())


@dataclass
class Stage:
    lab: Lab
    server: ApiServer
    directory: Path
    daemon: Process
    began: float = field(default_factory=time.monotonic)
    """When the daemon did."""

    async def check(
        self, family: Family = Family.IPV4, port: int = CHECK_PORT, path: str = "/"
    ) -> Reply | None:
        """The reply to the load balancer; None where no socket listens, or where it is just being closed (reset)."""
        client, address = self.lab.network["client"], LAB.node_address["a"][family]
        try:
            return await asyncio.to_thread(fetch, client, address, port, path)
        except (ConnectionRefusedError, ConnectionResetError):
            return None

    async def status(self, family: Family = Family.IPV4, port: int = CHECK_PORT) -> int | None:
        reply = await self.check(family, port)
        return reply.status if reply else None

    async def local(self, port: int, path: str) -> Reply:
        """The reply to the node itself on loopback."""
        return await asyncio.to_thread(fetch, self.lab.network["a"], LOOPBACK, port, path)

    async def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        text = (await self.local(METRICS_PORT, "/metrics")).body
        return {
            (sample.name.removeprefix("kubeproxy_"), frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def short(self, purpose: str) -> float:
        """How often the daemon had no descriptor left for it."""
        counted = await self.metrics()
        return counted["kproxy_descriptor_shortages_total", frozenset({("purpose", purpose)})]

    async def has_been_short(self, purpose: str) -> bool:
        return await self.short(purpose) > 0

    async def serves(self, address: str) -> bool:
        """Whether the first Service port at that address is in the rules of the node."""
        commands = {"nft": ("nft", "list", "ruleset"), "iptables": ("iptables-nft-save",)}
        texts = [await run_in(self.lab.network["a"], command) for command in commands.values()]
        return any(address in text for text in texts)

    def put(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            self.server.store.put(ResourceKind(document["kind"]), document)

    async def becomes(self, true: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + WITHIN
        while not await true():
            assert self.daemon.returncode is None, self.daemon.log.read_text()
            assert time.monotonic() < deadline, self.daemon.log.read_text()
            await asyncio.sleep(0.02)

    async def answers(self, wanted: int | None, family: Family = Family.IPV4, port: int = CHECK_PORT) -> None:
        async def so() -> bool:
            return await self.status(family, port) == wanted

        await self.becomes(so)


@asynccontextmanager
async def stage(
    mode: str,
    *,
    by: tuple[str, ...] = (),
    **changes: Any,  # noqa: ANN401 - a file's fields
) -> AsyncIterator[Stage]:
    """A lab with a daemon on node a that has synced; ``changes`` to its configuration, ``by`` a program that starts it."""
    with tempfile.TemporaryDirectory(prefix="kproxy-ports-") as name:
        directory = Path(name)
        async with open_lab() as lab, ApiServer() as server:
            for document in (*node_documents(), service_cidr_document()):
                server.store.put(ResourceKind(document["kind"]), document)
            await server.listen([listen_in(lab.network["a"], LOOPBACK, API_PORT)])
            daemon = _start(lab, directory, mode, by, changes)
            try:
                made = Stage(lab, server, directory, daemon)
                await made.becomes(lambda: _synced(made))
                yield made
            finally:
                daemon.kill()
                await daemon.wait()


def _start(lab: Lab, directory: Path, mode: str, by: tuple[str, ...], changes: dict[str, Any]) -> Process:
    path, config = directory / "kubeconfig", directory / "config.yaml"
    path.write_text(kubeconfig(f"http://127.0.0.1:{API_PORT}"))
    place = NodeConfiguration(node="a", mode=mode, kubeconfig=str(path))
    config.write_text(yaml.safe_dump(yaml.safe_load(kube_proxy_configuration(DEFAULT, place)) | changes))
    return spawn(
        [*by, sys.executable, "-m", "kproxy", "run", "--config", str(config)],
        lab.network["a"],
        log=directory / "daemon.log",
        path_prefix=breakable(directory / "bin"),
    )


def breakable(directory: Path) -> Path:
    """The iptables tools, whose restore fails as long as there is a file ``broken``."""
    real = xtables_directory(directory / "real", Xtables.NFT)
    for tool in real.iterdir():
        script = directory / tool.name
        fails = f'[ -e {directory}/broken ] && {{ echo "broken for a test" >&2; exit 4; }}\n'
        script.write_text(f'#!/bin/sh\n{fails if "restore" in tool.name else ""}exec {tool} "$@"\n')
        script.chmod(0o755)
    return directory


async def _synced(made: Stage) -> bool:
    try:
        found = await made.metrics()
    except OSError:
        return False
    dated = {labels for name, labels in found if name == "sync_proxy_rules_last_timestamp_seconds"}
    return len(dated) == len(Family)


def balanced(
    *, port: int = CHECK_PORT, name: str = "web", policy: str = "Local", number: int = 1
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "test", "name": name},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": f"10.96.7.{number}",
            "clusterIPs": [f"10.96.7.{number}", f"fd00:96::7:{number}"],
            "ipFamilies": ["IPv4", "IPv6"],
            "externalTrafficPolicy": policy,
            "healthCheckNodePort": port if policy == "Local" else 0,
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30000 + number}],
        },
        "status": {"loadBalancer": {}},
    }


def endpoints(
    *pods: str, family: Family = Family.IPV4, name: str = "web", **conditions: bool
) -> dict[str, Any]:
    """The endpoints of one family, changed just now."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "test",
            "name": f"{name}-{family.value.lower()}",
            "labels": {"kubernetes.io/service-name": name},
            "annotations": {
                "endpoints.kubernetes.io/last-change-trigger-time": datetime.now(UTC).strftime(
                    "%Y-%m-%dT%H:%M:%SZ"
                )
            },
        },
        "addressType": family.value,
        "endpoints": [
            {
                "addresses": [str(LAB.pod_address[pod][family])],
                "nodeName": LAB.hostnames[LAB.node_of(pod)],
                "conditions": {"ready": True, **conditions},
            }
            for pod in pods
        ],
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
    }
