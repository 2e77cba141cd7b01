"""The client and the server of tests in a cluster, as processes here: a client that misses failures would prove nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kproxy.lab.namespaces import Namespace, create
from kproxy.lab.processes import Process, spawn
from tests.kind.load import CLIENT, PORT, SERVER

Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a script in a network of the test's own."""
    namespace: Namespace = create("cluster")
    namespace.run(("ip", "link", "set", "lo", "up"))
    started: list[Process] = []

    def script(text: str, *words: str) -> Process:
        command = [sys.executable, "-c", text, *words]
        process = spawn(command, namespace, log=tmp_path / "log", env={"NODE_NAME": "node"})
        started.append(process)
        return process

    yield script
    for process in started:
        process.kill()
        asyncio.run(process.wait())
    namespace.close()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_client_counts_answers_and_tells_what_failed(start: Start, tmp_path: Path) -> None:
    result = tmp_path / "result"

    def seen() -> tuple[int, list[str]]:
        if not result.exists():
            return 0, []
        read = json.loads(result.read_text())
        return read["good"], read["bad"]

    server = start(SERVER)
    start(CLIENT, f"http://127.0.0.1:{PORT}/", str(result))
    until(lambda: seen()[0] > 20)
    failed_before = len(seen()[1])  # while the server was starting
    server.kill()
    until(lambda: len(seen()[1]) > failed_before)
    assert "refused" in seen()[1][-1]


def test_a_server_goes_on_while_it_is_terminating(start: Start, tmp_path: Path) -> None:
    result = tmp_path / "result"
    server = start(SERVER)
    start(CLIENT, f"http://127.0.0.1:{PORT}/", str(result))
    until(lambda: result.exists() and json.loads(result.read_text())["good"] > 20)
    before = json.loads(result.read_text())
    server.signal(signal.SIGTERM)
    time.sleep(1)
    after = json.loads(result.read_text())
    assert after["good"] > before["good"]
    assert after["bad"] == before["bad"]
