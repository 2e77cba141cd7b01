"""The daemon's ports as load balancers and scrapers find them: from outside, over a lab's network.

One daemon on node a, against the lab's API server, in iptables and in nftables mode.
Sources: the topics health and metrics of the catalogue of behaviours (``hcnp.*``, ``hz.*``, ``met.*``).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kproxy.conformance.binding.lab_objects import node_documents
from kproxy.lab.apiserver import ResourceKind
from kproxy.lab.probes.observation import Answered, ProbeRequest
from kproxy.lab.processes import listen_in
from kproxy.lab.topology import LAB
from kproxy.model.network import Family, Protocol
from tests.support.daemon_stage import (
    API_PORT,
    CHECK_PORT,
    HEALTH_PORT,
    METRICS_PORT,
    MODES,
    OTHER_CHECK_PORT,
    WITHIN,
    Stage,
    balanced,
    endpoints,
    fetch,
    stage,
)


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
    async def probe_behind_a_firewall() -> None:
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

    asyncio.run(probe_behind_a_firewall())


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
    async def probe_both() -> None:
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

    asyncio.run(probe_both())


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
    async def query() -> None:
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

    asyncio.run(query())


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
