"""The relay's workers under load, on real sockets: 10,000 connections at once, 2 GiB both ways, workers and daemons that end.

Each count has its control in the same test: the same clients directly at the server, or the same connections before.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from kproxy.lab import namespaces
from kproxy.lab.faults.conntrack_entries import InsertedEntry, entry_identities, insert_entry
from kproxy.lab.namespaces import Namespace
from kproxy.lab.probes.observation import Socket
from kproxy.lab.processes import kill_in
from kproxy.linux import host
from kproxy.model.network import Family, Protocol
from kproxy.proxy.plan import PoolScope
from kproxy.proxy.relay import fleet
from kproxy.proxy.relay.fleet import drain_workers, end_workers
from kproxy.proxy.relay.places import worker_places
from kproxy.proxy.relay.table import RelayPort
from kproxy.proxy.relay.workers import WorkerRelay
from tests.support.relay_ends import memory_of

MANY = 10_000
SERVER_PORT = 9000
GIBIBYTE = 1 << 30
ENDS = (sys.executable, "-m", "tests.support.relay_ends")
WORKER = "kproxy.proxy.relay"
_opened: list[WorkerRelay] = []


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Namespace]:
    """A network namespace with a server at 127.0.0.1; its relay workers end with it."""
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    made = namespaces.create_namespace("relay")
    made.run(("ip", "link", "set", "lo", "up"))
    server = made.start([*ENDS, "server", "127.0.0.1", str(SERVER_PORT)], stdout=subprocess.PIPE)
    assert server.stdout
    assert server.stdout.readline() == b"ready\n"
    with made.entered():
        yield made
    while _opened:
        _opened.pop().close()
    server.kill()
    server.wait()
    server.stdout.close()
    kill_in(made, WORKER)
    made.close()


def relay_of(workers: int) -> WorkerRelay:
    """The daemon's end of workers, left when the test is over."""
    _opened.append(WorkerRelay(Family.IPV4, workers))
    return _opened[-1]


def port_of(name: str = "default/web", **fields: Any) -> RelayPort:  # noqa: ANN401 - fields of a RelayPort
    endpoints = (("127.0.0.1", SERVER_PORT),)
    given = {"protocol": Protocol.TCP, "scope": PoolScope.CLUSTER, "endpoints": endpoints, **fields}
    return RelayPort(service=name, address="127.0.0.2", port=0, **given)


def served(relay: WorkerRelay, *ports: RelayPort) -> int:
    """Serve ports; the number of the first."""
    numbers = relay.open_missing(ports)
    relay.update(ports)
    return numbers[ports[0].key]


@contextlib.contextmanager
def client(node: Namespace, kind: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    made = node.start([*ENDS, "client", kind, *map(str, arguments)], stdin=pipe, stdout=pipe)
    yield made
    for end in (made.stdin, made.stdout):
        assert end
        end.close()
    made.wait()


def reported(of: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert of.stdout
    found: dict[str, Any] = json.loads(of.stdout.readline())
    return found


def go_on(with_it: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert with_it.stdin
    with_it.stdin.write(b"\n")
    with_it.stdin.flush()
    return reported(with_it)


def workers_of(node: Namespace) -> list[int]:
    """Processes of the relay inside, the parent first: its number may be the highest, where the kernel begins anew with low ones."""
    inside = Path(node.path).stat().st_ino
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if WORKER.encode() in (entry / "cmdline").read_bytes() and (
                (entry / "ns/net").stat().st_ino == inside
            ):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return sorted(parents, key=lambda process: (parents[process] in parents, process))


def await_workers(node: Namespace, count: int) -> None:
    deadline = time.monotonic() + 30
    while len(workers_of(node)) != count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ten_thousand_connections_are_open_at_once(node: Namespace) -> None:
    relay = relay_of(2)
    number = served(relay, port_of())
    before = memory_of(workers_of(node))
    with client(node, "hold", "127.0.0.2", number, MANY) as held:
        assert reported(held) == {"open": MANY}
        assert relay.count().open_connections == MANY
        each = (memory_of(workers_of(node)) - before) / MANY
        print(f"{MANY} connections, {each:.0f} bytes of memory each")
        assert each < 8192
        assert relay.count().limited == 0
        assert go_on(held) == {"alive": MANY}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_two_gibibytes_pass_both_ways_unchanged(node: Namespace) -> None:
    number = served(relay_of(2), port_of())
    for port, address, size in (
        (SERVER_PORT, "127.0.0.1", GIBIBYTE // 16),
        (number, "127.0.0.2", 2 * GIBIBYTE),
    ):
        with client(node, "exchange", address, port, size) as made:
            found = reported(made)
        print(address, found)
        assert found["equal"]


def test_connections_outlive_the_daemon_and_none_is_refused_meanwhile(node: Namespace) -> None:
    """The daemon is a process of its own, killed while connections are open and others are made."""
    number, daemon = daemon_with_a_port(node)
    with client(node, "hold", "127.0.0.2", number, 500) as held:
        assert reported(held) == {"open": 500}
        with client(node, "connect", "127.0.0.2", number, 2000, 4) as busy:
            time.sleep(0.2)
            daemon.kill()
            daemon.wait()
            time.sleep(0.5)
            again, daemon = daemon_with_a_port(node)
            assert again == number
            assert reported(busy)["failures"] == 0
        assert go_on(held) == {"alive": 500}
    daemon.kill()
    daemon.wait()
    end_workers()
    await_workers(node, 0)
    assert worker_places() == ()
    with client(node, "connect", "127.0.0.2", number, 4, 4) as refused:
        assert reported(refused)["failures"] == 4


def daemon_with_a_port(node: Namespace) -> tuple[int, subprocess.Popen[bytes]]:
    """A process that has the relay serve a port, as the daemon does; the port's number."""
    script = (
        "import time; from tests.netns.test_relay_load import *\n"
        "print(served(relay_of(2), port_of()), flush=True); time.sleep(600)"
    )
    made = node.start([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert made.stdout
    number = int(made.stdout.readline())
    made.stdout.close()
    return number, made


def test_a_worker_that_is_killed_costs_its_own_connections_alone(node: Namespace) -> None:
    relay = relay_of(2)
    sticky = port_of("default/sticky", affinity_seconds=60)
    number = served(relay, port_of(), sticky)
    with client(node, "hold", "127.0.0.2", number, 200) as held:
        assert reported(held) == {"open": 200}
        killed = workers_of(node)[-1]
        os.kill(killed, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while killed in workers_of(node) or not both_serve(number):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert served(relay, port_of(), sticky) == number
        with client(node, "connect", "127.0.0.2", number, 200, 4) as anew:
            assert reported(anew)["failures"] == 0
        assert 0 < relay.count().open_connections < 200


def test_a_worker_without_a_parent_is_replaced_too(node: Namespace) -> None:
    """The control is the parent's end alone, which costs nothing."""
    relay = relay_of(2)
    number = served(relay, port_of())
    parent, *workers = workers_of(node)
    with client(node, "hold", "127.0.0.2", number, 40) as held:
        assert reported(held) == {"open": 40}
        os.kill(parent, signal.SIGKILL)
        with client(node, "connect", "127.0.0.2", number, 40, 4) as anew:
            assert reported(anew)["failures"] == 0
        assert go_on(held) == {"alive": 40}
        os.kill(workers[0], signal.SIGKILL)
        deadline = time.monotonic() + 30
        while workers[0] in workers_of(node) or not both_serve(number):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert served(relay, port_of()) == number
        assert workers[1] in workers_of(node), "it goes on with its connections"
        with client(node, "connect", "127.0.0.2", number, 40, 4) as anew:
            assert reported(anew)["failures"] == 0


def test_udp_flows_to_the_relay_end_when_another_mode_closes_its_ports(node: Namespace) -> None:
    """Nobody would know them afterwards, where their Service is deleted meanwhile.  The control is a flow to another socket."""
    number = served(relay_of(1), port_of("default/dns", protocol=Protocol.UDP))
    client, to = Socket(ip_address("192.0.2.1"), 4000), Socket(ip_address("192.0.2.2"), 30002)
    led, other = (
        InsertedEntry(Protocol.UDP, replace(client, port=port), to, Socket(ip_address("127.0.0.2"), at))
        for port, at in ((4000, number), (4001, number + 1))
    )
    for entry in (led, other):
        asyncio.run(insert_entry(node, entry))
    assert not drain_workers(Family.IPV4)
    assert asyncio.run(entry_identities(node, [led, other])).keys() == {other}


def both_serve(number: int) -> bool:
    """True if two sockets listen at the number."""
    listening = host.run_tool(("ss", "-Hltn", f"sport = :{number}"))
    return len(listening.splitlines()) == 2


def test_workers_of_another_release_hand_their_sockets_over(
    node: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = relay_of(2)
    datagrams = port_of("default/dns", protocol=Protocol.UDP)
    number = served(relay, port_of(), datagrams)
    older = set(workers_of(node))
    with client(node, "hold", "127.0.0.2", number, 200) as held:
        assert reported(held) == {"open": 200}
        with client(node, "connect", "127.0.0.2", number, 2000, 4) as busy:
            monkeypatch.setattr(fleet, "RELEASE", "another")
            newer = relay_of(0)
            assert served(newer, port_of(), datagrams) == number
            assert reported(busy)["failures"] == 0
        assert len(set(workers_of(node)) - older) == 3  # as many as before, and their parent
        with client(node, "connect", "127.0.0.2", number, 100, 4) as anew:
            assert reported(anew)["failures"] == 0
        assert newer.count().connections >= 100
        assert go_on(held) == {"alive": 200}
