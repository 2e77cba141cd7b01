"""The client and the server of tests in a cluster, as processes here: a client that misses failures would prove nothing."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy.lab.namespaces import Namespace, create_namespace
from kproxy.lab.processes import Process, spawn
from tests.kind.load import CLIENT, PORT, SERVER, Client

NAMES = {"NODE_NAME": "node", "POD_NAME": "it"}
LOSE_THE_FIRST = f"""
table inet lose {{
  set seen {{ type inet_service; flags dynamic; timeout 60s; }}
  chain input {{
    type filter hook input priority 0
    tcp dport {PORT} tcp flags syn tcp sport != @seen add @seen {{ tcp sport }} drop
  }}
}}
"""

Start = Callable[..., Process]


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = create_namespace("cluster")
    made.run(("ip", "link", "set", "lo", "up"))
    yield made
    made.close()


@pytest.fixture
def start(namespace: Namespace, tmp_path: Path) -> Iterator[Start]:
    """Starts a script in a network of the test's own."""
    started: list[Process] = []

    def script(text: str, *arguments: str) -> Process:
        log = tmp_path / f"log-{len(started)}"
        started.append(spawn([sys.executable, "-c", text, *arguments], namespace, log=log, env=NAMES))
        return started[-1]

    yield script
    for process in started:
        process.kill()
        asyncio.run(process.wait())


@pytest.fixture
def start_client(start: Start) -> Callable[[str], Client]:
    def client(way: str) -> Client:
        log = start(CLIENT, way, "127.0.0.1", str(PORT)).log

        def last() -> str:
            return (log.read_text().splitlines(keepends=True) or [""])[-1]

        return Client(lambda: text if (text := last()).endswith("\n") else "")

    return client


@pytest.mark.parametrize("way", ["new", "held", "udp"])
def test_a_client_counts_answers_and_who_gave_them_and_what_is_lost(
    start: Start, start_client: Callable[[str], Client], way: str
) -> None:
    server, client = start(SERVER), start_client(way)
    before = client.steady()
    assert (before.pods, before.nodes) == ({"it"}, {"node"})
    assert client.lost_nothing(before).since(before).pods == {"it"}
    server.kill()
    client.until(lambda seen: seen.lost > before.lost + 3, "losing")
    with pytest.raises(AssertionError, match="refused"):
        client.lost_nothing(before)


def test_a_packet_that_had_to_be_sent_again_is_a_loss(
    start: Start, start_client: Callable[[str], Client], namespace: Namespace
) -> None:
    start(SERVER)
    client = start_client("new")
    before = client.steady()
    namespace.run(("nft", "-f", "-"), LOSE_THE_FIRST)
    assert "sent again" in client.until(lambda seen: seen.lost > before.lost, "losing").reason


def test_a_server_goes_on_while_it_is_terminating(
    start: Start, start_client: Callable[[str], Client]
) -> None:
    server, client = start(SERVER), start_client("new")
    before = client.steady()
    server.signal(signal.SIGTERM)
    time.sleep(1)
    client.lost_nothing(before)
