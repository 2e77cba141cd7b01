"""Alerts and dashboard: promtool tests the rules, and a real Prometheus that scrapes the daemon answers every query (root)."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from kproxy.lab.processes import spawn
from kproxy.model.network import Family
from tests.support.daemon_stage import (
    HEALTH_PORT,
    LOOPBACK,
    METRICS_PORT,
    Stage,
    balanced,
    endpoints,
    fetch,
    stage,
)
from tests.support.deploy import DEPLOY
from tools.docgen import dashboard

RULES = DEPLOY / "prometheus"
PORT = 9090


def program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is missing: apt-get install prometheus"
    return found


@pytest.mark.parametrize(
    "arguments", [("check", "rules", "rules.yaml"), ("test", "rules", "rules_test.yaml")]
)
def test_the_rules_alert_when_they_should_and_not_before(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [program("promtool"), *arguments], cwd=RULES, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def queries() -> list[str]:
    """Queries of the dashboard, as Grafana would send them."""
    panels = json.loads(dashboard.dashboard())["panels"]
    texts = [target["expr"] for panel in panels for target in panel["targets"]]
    return [text.replace("$instance", ".*").replace("$__rate_interval", "5s") for text in texts]


async def answers(stand: Stage, query: str) -> list[object]:
    path = f"/api/v1/query?query={quote(query)}"
    reply = await asyncio.to_thread(fetch, stand.lab.network["a"], LOOPBACK, PORT, path)
    assert reply.status == 200, reply.body
    found: list[object] = reply.json["data"]["result"]
    return found


async def scraped(mode: str, place: Path) -> dict[str, int]:
    """Number of series that answer each query, once a Prometheus has scraped a daemon that has synced a few changes."""
    config = {
        "global": {"scrape_interval": "500ms"},
        "scrape_configs": [
            {"job_name": "proxy", "static_configs": [{"targets": [f"127.0.0.1:{METRICS_PORT}"]}]}
        ],
        "rule_files": [str(RULES / "rules.yaml")],
    }
    (place / "prometheus.yml").write_text(yaml.safe_dump(config))
    listen = f"--web.listen-address=127.0.0.1:{PORT}"
    argv = [
        program("prometheus"),
        f"--config.file={place}/prometheus.yml",
        f"--storage.tsdb.path={place}/data",
        listen,
    ]
    async with stage(mode) as stand:
        prometheus = spawn(argv, stand.lab.network["a"], log=place / "log")
        try:
            await until_scraped(stand)
            stand.put(balanced(), endpoints("b1"), endpoints("b1", family=Family.IPV6))
            for path in ("/healthz", "/livez"):
                await stand.local(HEALTH_PORT, path)
            await asyncio.sleep(3)  # a rate is of two scrapes at least
            return {query: len(await answers(stand, query)) for query in queries()}
        finally:
            prometheus.kill()
            await prometheus.wait()


async def until_scraped(stand: Stage) -> None:
    """Wait until there are scrapes of the last seconds to make rates of."""
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline, "Prometheus has not scraped the daemon"
        await asyncio.sleep(0.5)
        try:
            if (
                await asyncio.to_thread(fetch, stand.lab.network["a"], LOOPBACK, PORT, "/-/ready")
            ).status != 200:
                continue  # it still reads its storage, and answers queries with 503
            found = await answers(
                stand, "count_over_time(kubeproxy_sync_proxy_rules_last_timestamp_seconds[4s])"
            )
        except OSError:
            continue
        if found and all(int(one["value"][1]) >= 6 for one in found):  # type: ignore[index]
            return


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_every_query_of_the_dashboard_answers(mode: str, tmp_path: Path) -> None:
    found = asyncio.run(scraped(mode, tmp_path))
    assert len(found) == len(queries())
    assert [query for query, number in found.items() if not number] == []
