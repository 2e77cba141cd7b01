"""The daemon's ports as load balancers and scrapers find them: from outside, over a lab's network.

One daemon on node a, against the lab's API server, in iptables and in nftables mode.
Sources: the topics health and metrics of the catalogue of behaviours (``hcnp.*``, ``hz.*``, ``met.*``).
"""

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

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from kproxy.conformance.binding.lab_objects import node_documents, service_cidr_document
from kproxy.conformance.case import DEFAULT
from kproxy.conformance.subjects.configuration import NodeConfiguration, kube_proxy_configuration
from kproxy.lab.apiserver import ApiServer, ResourceKind, kubeconfig
from kproxy.lab.lab import Lab, open_lab
from kproxy.lab.namespaces import Namespace
from kproxy.lab.probes.observation import Answered, ProbeRequest
from kproxy.lab.processes import Process, Xtables, listen_in, run_in, spawn, xtables_directory
from kproxy.lab.topology import LAB
from kproxy.model.network import Address, Family, Protocol

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
        """What the load balancer is told; None where nobody listens, or where that ends just now (reset)."""
        client, address = self.lab.network["client"], LAB.node_address["a"][family]
        try:
            return await asyncio.to_thread(fetch, client, address, port, path)
        except (ConnectionRefusedError, ConnectionResetError):
            return None

    async def status(self, family: Family = Family.IPV4, port: int = CHECK_PORT) -> int | None:
        reply = await self.check(family, port)
        return reply.status if reply else None

    async def local(self, port: int, path: str) -> Reply:
        """What the node itself is told on loopback."""
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


@pytest.mark.parametrize("mode", MODES)
def test_a_load_balancer_finds_the_node_well_while_an_endpoint_is_here_and_the_port_lives_with_its_service(
    mode: str,
) -> None:
    async def follow() -> None:
        async with stage(mode) as on:
            assert await on.status() is None
            on.put(balanced(), endpoints("a1", "a2", "b1"), endpoints("b1", family=Family.IPV6))
            await on.answers(200)
            reply = await on.check(path="/any/path")
            assert reply is not None
            assert reply.headers["Content-Type"] == "application/json"
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
            assert reply.headers["X-Load-Balancing-Endpoint-Weight"] == "2"
            assert reply.json == {
                "service": {"namespace": "test", "name": "web"},
                "localEndpoints": 2,
                "serviceProxyHealthy": True,
            }
            await on.answers(503, Family.IPV6)
            on.put(endpoints("b1"))
            await on.answers(503)
            on.put(endpoints("a1", "b1"))
            await on.answers(200)
            on.put(endpoints("a1", "b1", ready=False, serving=True, terminating=True))
            await on.answers(503)
            on.put(balanced(port=OTHER_CHECK_PORT), endpoints("a1"))
            await on.answers(200, port=OTHER_CHECK_PORT)
            await on.answers(None)
            on.put(balanced(policy="Cluster"))
            await on.answers(None, port=OTHER_CHECK_PORT)
            on.put(balanced())
            await on.answers(200)
            on.server.store.delete(ResourceKind.SERVICE, "test", "web")
            await on.answers(None)

    asyncio.run(follow())


def test_iptables_mode_lets_probes_in_whatever_the_policy_of_input() -> None:
    async def ask_behind_a_firewall() -> None:
        async with stage("iptables") as on:
            node = on.lab.network["a"]
            for rule in ("-A INPUT -i lo -j ACCEPT", "-P INPUT DROP"):
                node.run(["iptables-nft", *rule.split()])
            control = listen_in(node, LAB.node_address["a"][Family.IPV4], 8888)
            with control, pytest.raises(TimeoutError):
                await asyncio.to_thread(
                    fetch, on.lab.network["client"], LAB.node_address["a"][Family.IPV4], 8888, "/", 0.5
                )
            on.put(balanced(), endpoints("a1"))
            await on.becomes(lambda: _reached(on))

    asyncio.run(ask_behind_a_firewall())


async def _reached(on: Stage) -> bool:
    try:
        return await on.status() == 200
    except TimeoutError:
        return False


def test_a_port_that_is_taken_costs_no_other_service_is_reported_and_had_once_it_is_free() -> None:
    async def compete() -> None:
        async with stage("nftables") as on:
            node = on.lab.network["a"]
            taken = listen_in(node, LAB.node_address["a"][Family.IPV4], CHECK_PORT)
            with taken:
                on.put(balanced(), endpoints("a1"))
                on.put(balanced(port=OTHER_CHECK_PORT, name="two", number=2), endpoints("a1", name="two"))
                await on.answers(200, port=OTHER_CHECK_PORT)
                await on.becomes(lambda: _event(on, "FailedToStartServiceHealthcheck", "web"))
            await on.answers(200)

    asyncio.run(compete())


async def _event(on: Stage, reason: str, name: str) -> bool:
    found = [version.document() for version in on.server.store.objects(ResourceKind.EVENT)]
    return any(
        event.get("reason") == reason
        and (event.get("regarding") or event.get("involvedObject") or {}).get("name") == name
        for event in found
    )


@pytest.mark.parametrize("mode", MODES)
def test_probes_are_answered_at_the_configured_node_port_addresses_only(mode: str) -> None:
    async def ask_both() -> None:
        second = str(LAB.second_network[Family.IPV4])
        async with stage(mode, nodePortAddresses=[second]) as on:
            on.put(balanced(), endpoints("a1"))
            address = LAB.second_address["a"][Family.IPV4]

            async def there() -> bool:
                try:
                    reply = await asyncio.to_thread(fetch, on.lab.network["client"], address, CHECK_PORT)
                except ConnectionRefusedError:
                    return False
                return reply.status == 200

            await on.becomes(there)
            assert await on.status() is None

    asyncio.run(ask_both())


def test_a_node_that_is_to_go_wants_no_new_traffic_but_its_services_stay_well() -> None:
    async def taint() -> None:
        async with stage("nftables") as on:
            on.lab.servers.serve(on.lab.network["a1"], 8080, Protocol.TCP, "a1")
            on.put(balanced(), endpoints("a1"))
            await on.answers(200)
            assert (await on.local(HEALTH_PORT, "/healthz")).status == 200
            request = ProbeRequest(
                sender="client",
                destination=LAB.node_address["a"][Family.IPV4],
                port=30001,
                patience=3.0,
            )
            held, opened = await on.lab.open_flow(request)
            assert held is not None
            assert isinstance(opened, Answered)
            node = next(n for n in node_documents() if n["metadata"]["name"] == LAB.hostnames["a"])
            taints = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
            on.put(node | {"spec": node.get("spec", {}) | {"taints": taints}})

            async def unwell() -> bool:
                return (await on.local(HEALTH_PORT, "/healthz")).status == 503

            await on.becomes(unwell)
            reported = (await on.local(HEALTH_PORT, "/healthz")).json
            assert reported["nodeEligible"] is False
            assert reported["healthy"] is True
            assert reported["status"]["IPv4"]["healthy"] is True
            assert (await on.local(HEALTH_PORT, "/livez")).status == 200
            assert await on.status() == 200
            assert isinstance(await held.exchange(3.0), Answered)
            assert isinstance(await on.lab.probe(request), Answered)
            held.close()
            found = await on.metrics()
            assert found["proxy_healthz_total", frozenset({("code", "503")})] >= 2
            assert found["proxy_livez_total", frozenset({("code", "200")})] == 1
            on.server.store.delete(ResourceKind.NODE, "", LAB.hostnames["a"])
            on.put(node)

            async def well() -> bool:
                return (await on.local(HEALTH_PORT, "/healthz")).status == 200

            await on.becomes(well)

    asyncio.run(taint())


def test_rules_that_cannot_be_written_keep_the_old_answer_then_make_all_unwell_until_they_can() -> None:
    async def break_and_mend() -> None:
        periods = {"syncPeriod": "500ms", "minSyncPeriod": "10ms", "masqueradeBit": 14}
        async with stage("iptables", iptables=periods) as on:
            on.put(balanced(), endpoints("a1"))
            await on.answers(200)
            before = await on.metrics()
            broken = on.directory / "bin" / "broken"
            broken.touch()
            on.put(endpoints("a1", "a2"))
            await on.answers(503)
            reply = await on.check()
            assert reply is not None
            assert reply.json["localEndpoints"] == 1
            assert reply.json["serviceProxyHealthy"] is False
            for path in ("/healthz", "/livez"):
                reported = await on.local(HEALTH_PORT, path)
                assert reported.status == 503
                assert reported.json["status"]["IPv4"]["healthy"] is False
            failures = "sync_proxy_rules_iptables_restore_failures_total"
            partial = "sync_proxy_rules_iptables_partial_restore_failures_total"
            four = frozenset({("ip_family", "IPv4")})
            after = await on.metrics()
            assert after[failures, four] > before[failures, four] == 0
            assert after[partial, four] == before[partial, four] + 1
            broken.unlink()
            await on.answers(200)
            reply = await on.check()
            assert reply is not None
            assert reply.json["localEndpoints"] == 2
            assert (await on.local(HEALTH_PORT, "/livez")).status == 200

    asyncio.run(break_and_mend())


def labels_of_requests(**given: str) -> frozenset[tuple[str, str]]:
    return frozenset({**given, "host": f"127.0.0.1:{API_PORT}"}.items())


@pytest.mark.parametrize("mode", MODES)
def test_a_scrape_before_and_after_a_known_change_differs_by_that_change(mode: str) -> None:
    async def measure() -> None:
        async with stage(mode) as on:
            on.put(balanced(), endpoints("a1"))
            await on.answers(200)
            before = await on.metrics()
            await asyncio.sleep(1.1)  # the annotation has whole seconds, and must lie after the start
            on.put(balanced(port=OTHER_CHECK_PORT, name="two", number=2), endpoints("b1", name="two"))
            await on.answers(503, port=OTHER_CHECK_PORT)
            four = frozenset({("ip_family", "IPv4")})
            lost = frozenset({("ip_family", "IPv4"), ("traffic_policy", "external")})
            blamed = "sync_proxy_rules_no_local_endpoints_total"

            async def all_is_in() -> bool:
                now = await on.metrics()
                waiting = now["sync_proxy_rules_service_changes_pending", frozenset()]
                return not waiting and now[blamed, lost] > before[blamed, lost]

            await on.becomes(all_is_in)
            after = await on.metrics()

            def grew(name: str, labels: frozenset[tuple[str, str]] = four) -> float:
                return after[name, labels] - before.get((name, labels), 0.0)

            nothing: frozenset[tuple[str, str]] = frozenset()
            assert grew("sync_proxy_rules_service_changes_total", nothing) == 2  # one in each family
            assert grew("sync_proxy_rules_endpoint_changes_total", nothing) == 1
            assert after["sync_proxy_rules_service_changes_pending", nothing] == 0
            assert after["sync_proxy_rules_endpoint_changes_pending", nothing] == 0
            assert grew("network_programming_duration_seconds_count") == 1
            assert 0 < grew("network_programming_duration_seconds_sum") < WITHIN
            assert 1 <= grew("sync_proxy_rules_duration_seconds_count") <= 3
            assert grew("sync_partial_proxy_rules_duration_seconds_count") >= 1
            assert grew("sync_full_proxy_rules_duration_seconds_count") == 0
            assert grew("sync_proxy_rules_last_timestamp_seconds") > 0
            assert grew("sync_proxy_rules_last_queued_timestamp_seconds") > 0
            assert grew("conntrack_reconciler_sync_duration_seconds_count") >= 1
            assert grew(blamed, lost) == 1
            requested = labels_of_requests(code="200", method="GET")
            assert before["rest_client_requests_total", requested] >= 3
            assert (
                after["rest_client_requests_total", requested]
                == before["rest_client_requests_total", requested]
            )
            names = {name for name, _ in after}
            if mode == "iptables":
                nat = frozenset({("ip_family", "IPv4"), ("table", "nat")})
                assert grew("sync_proxy_rules_iptables_total", nat) > 0
                assert (
                    0
                    < after["sync_proxy_rules_iptables_last", nat]
                    < after["sync_proxy_rules_iptables_total", nat]
                )
                assert not {name for name in names if "nftables" in name}
            else:
                assert after["sync_proxy_rules_nftables_sync_failures_total", four] == 0
                assert not {name for name in names if "iptables" in name}

    asyncio.run(measure())


def test_the_metrics_port_serves_mode_configuration_and_status_and_profiles_only_if_enabled() -> None:
    async def ask() -> None:
        async with stage("nftables", enableProfiling=True) as on:
            assert (await on.local(METRICS_PORT, "/proxyMode")).body == "nftables"
            assert (await on.local(METRICS_PORT, "/healthz")).body == "ok"
            reported = (await on.local(METRICS_PORT, "/configz")).json["kubeproxy.config.k8s.io"]
            assert reported["hostnameOverride"] == LAB.hostnames["a"]
            assert reported["enableProfiling"] is True
            assert "Up: 0 hr 00 min" in (await on.local(METRICS_PORT, "/statusz")).body
            assert "process_start_time_seconds" in (await on.local(METRICS_PORT, "/metrics/slis")).body
            flags = (await on.local(METRICS_PORT, "/flagz")).body
            assert f"\nconfig: {on.directory}/config.yaml\n" in flags
            assert "thread ports" in (await on.local(METRICS_PORT, "/debug/pprof/goroutine")).body
        async with stage("nftables") as on:
            assert (await on.local(METRICS_PORT, "/debug/pprof/goroutine")).status == 404

    asyncio.run(ask())


DESCRIPTORS = 256
SERVICES = 300
"""Each with a health check node port in either family: more than the daemon may have descriptors."""


@pytest.mark.parametrize("mode", MODES)
def test_more_health_check_node_ports_than_descriptors_cost_no_other_part_of_the_daemon(mode: str) -> None:
    def of(number: int) -> dict[str, Any]:
        return balanced(port=31500 + number, name=f"web-{number}", number=number % 250 + 1)

    async def crowd() -> None:
        limited = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", "--")
        async with stage(mode, by=limited) as on:
            assert await on.short("listener") == 0
            on.put(*(of(number) for number in range(SERVICES)))
            await on.becomes(lambda: on.has_been_short("listener"))
            on.put(balanced(number=251), endpoints("a1"))
            await on.becomes(lambda: on.serves("10.96.7.251"))
            assert (await on.local(HEALTH_PORT, "/healthz")).status == 200
            for purpose in ("netlink", "command", "api_server", "connection"):
                assert await on.short(purpose) == 0
            log = on.daemon.log.read_text()
            assert "descriptors" in log
            assert "Traceback" not in log
            for number in range(SERVICES):
                on.server.store.delete(ResourceKind.SERVICE, "test", f"web-{number}")
            await on.answers(200)

    asyncio.run(crowd())
