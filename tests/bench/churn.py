"""``python -m tests.bench.churn``: a day of endpoint changes in minutes; the daemon's memory must stay flat.

A daemon in a namespace of its own, against the lab's API server; the pods of its Services change as fast as it follows, and
with every hundredth change a Service makes room for one of another name.  A large cluster has some three changes a second: a day
of it is 259,200 events.  Exit status: 0 flat, 1 not.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from statistics import linear_regression
from typing import Any

from kproxy.conformance.binding.lab_objects import node_documents, service_cidr_document
from kproxy.conformance.case import DEFAULT
from kproxy.conformance.subjects.configuration import NodeConfiguration, kube_proxy_configuration
from kproxy.lab import namespaces
from kproxy.lab.apiserver import ApiServer, ResourceKind
from kproxy.lab.namespaces import Namespace
from kproxy.lab.processes import Process, listen_in, spawn

A_DAY = 259_200
PORT, METRICS_PORT = 6443, 10249
ADDRESS = ip_address("127.0.0.1")
NAMESPACE = "churn"
MODES = ("iptables", "nftables")
BURST = 100
SETTLING = 0.5
"""Share of the events after which memory must be stable: caches are filled, freed memory is reused."""
ALLOWED = 4.0
"""Allowed growth after that in MB, memory that the allocator does not return: in a day 16 bytes for each event."""
SEEN = b"kubeproxy_sync_proxy_rules_endpoint_changes_total"
OVERDUE = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident memory in MB after so many events."""

    events: int
    memory: float


def growth(samples: list[Sample]) -> float:
    """Growth in MB after settling, at the rate of the quieter half of that time.

    A leak grows in both halves; memory that the allocator takes once, for the largest batch so far, in one of them.
    """
    settled = [sample for sample in samples if sample.events >= SETTLING * samples[-1].events]
    middle = len(settled) // 2
    slope = min(_slope(settled[: middle + 1]), _slope(settled[middle:]))
    return slope * (settled[-1].events - settled[0].events)


def _slope(samples: list[Sample]) -> float:
    """MB an event, by linear regression."""
    return linear_regression([s.events for s in samples], [s.memory for s in samples]).slope


def service(name: str, number: int) -> dict[str, Any]:
    address = f"10.96.{number >> 8}.{number & 255}"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}],
        },
    }


def endpoint_slice(service: str, chance: random.Random) -> dict[str, Any]:
    """A slice with four pods, of a quarter million possible ones."""
    pods = [f"10.244.{chance.randrange(256)}.{chance.randrange(1, 255)}" for _ in range(4)]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service}-x",
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [pod], "conditions": {"ready": True}, "nodeName": "node-a"} for pod in pods
        ],
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
    }


@dataclass
class Churn:
    """The cluster, and the daemon that follows it."""

    namespace: Namespace
    server: ApiServer
    daemon: Process
    services: list[str]
    """Their names."""
    chance: random.Random
    written: int = 0

    def burst(self, count: int) -> None:
        """Replace one Service by another, then change endpoints ``count`` times."""
        with self.server.store.batch():
            self.replace(self.chance.randrange(len(self.services)))
            for _ in range(count):
                number = self.chance.randrange(len(self.services))
                self.server.store.put(
                    ResourceKind.ENDPOINT_SLICE, endpoint_slice(self.services[number], self.chance)
                )
        self.written += count

    def replace(self, number: int) -> None:
        """Delete Service and slice and add another Service; its next endpoint change creates the slice."""
        old = self.services[number]
        self.services[number] = f"s{number}-{self.written}"
        self.server.store.delete(ResourceKind.SERVICE, NAMESPACE, old)
        with suppress(KeyError):
            self.server.store.delete(ResourceKind.ENDPOINT_SLICE, NAMESPACE, f"{old}-x")
            self.written += 1
        self.server.store.put(ResourceKind.SERVICE, service(self.services[number], number))

    def memory(self) -> float:
        status = Path(f"/proc/{self.daemon.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    async def followed(self) -> None:
        """Wait until the daemon has received all changes."""
        deadline = time.monotonic() + OVERDUE
        while (seen := await self._seen()) < self.written:
            assert time.monotonic() < deadline, (
                f"{seen} of {self.written}: {self.daemon.log.read_text()[-500:]}"
            )
            await asyncio.sleep(0.01)

    async def _seen(self) -> int:
        sock = self.namespace.socket(2, 1)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (str(ADDRESS), METRICS_PORT))
        except ConnectionRefusedError:
            sock.close()
            return -1
        reader, writer = await asyncio.open_connection(sock=sock)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = await reader.read()
        writer.close()
        values = [line.split()[-1] for line in text.splitlines() if line.startswith(SEEN)]
        return int(float(values[0])) if values else -1


@asynccontextmanager
async def following(mode: str, services: int) -> AsyncIterator[Churn]:
    """A daemon that has synced this many Services."""
    names = [f"s{number}" for number in range(services)]
    namespace = namespaces.create_namespace("churn")
    namespace.run(("ip", "link", "set", "lo", "up"))
    chance = random.Random(1)  # noqa: S311 - the same changes every time
    with tempfile.TemporaryDirectory(prefix="kproxy-churn-") as name:
        async with ApiServer() as server:
            made = (service(name, number) for number, name in enumerate(names))
            for document in (*node_documents(), service_cidr_document(), *made):
                server.store.put(ResourceKind(document["kind"]), document)
            await server.listen([listen_in(namespace, ADDRESS, PORT)])
            daemon = _start(mode, namespace, Path(name))
            try:
                churn = Churn(namespace, server, daemon, names, chance)
                await churn.followed()
                yield churn
            finally:
                daemon.kill()
                await daemon.wait()
                namespace.close()


def _start(mode: str, namespace: Namespace, folder: Path) -> Process:
    kubeconfig, config = folder / "kubeconfig", folder / "config.yaml"
    kubeconfig.write_text(ApiServer().kubeconfig(f"{ADDRESS}:{PORT}"))
    place = NodeConfiguration(node="a", mode=mode, kubeconfig=str(kubeconfig), min_sync_period="50ms")
    config.write_text(kube_proxy_configuration(DEFAULT, place))
    arguments = [sys.executable, "-m", "kproxy", "run", "--config", str(config)]
    return spawn(arguments, namespace, log=folder / "log")


async def follow(mode: str, events: int, services: int, samples: int = 40) -> list[Sample]:
    """Samples of memory over this many events."""
    found: list[Sample] = []
    async with following(mode, services) as made:
        while made.written < events:
            for _ in range(max(1, events // samples // BURST)):
                made.burst(BURST)
                await made.followed()
            found.append(Sample(made.written, made.memory()))
    return found


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.churn", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--events", type=int, default=A_DAY, help="default: %(default)s, a day of a large cluster"
    )
    parser.add_argument("--services", type=int, default=1000, help="default: %(default)s, of four endpoints")
    parser.add_argument("--mode", choices=MODES, action="append", help="default: both")
    options = parser.parse_args()
    return max(judge(mode, options.events, options.services) for mode in options.mode or MODES)


def judge(mode: str, events: int, services: int) -> int:
    """Run and print; returns 1 if memory was not flat."""
    started = time.monotonic()
    samples = asyncio.run(follow(mode, events, services))
    for sample in samples:
        print(f"{mode}  {sample.events:8d} events  {sample.memory:6.1f} MB")
    found = growth(samples)
    took = time.monotonic() - started
    print(f"{mode}  {found:+.2f} MB after settling, {ALLOWED:g} allowed; {took:.0f} s")
    return int(found > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
