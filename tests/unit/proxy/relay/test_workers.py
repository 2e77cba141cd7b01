"""The relay in workers: which worker serves what, a daemon that comes again, a worker that nobody comes back to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest import mock

import pytest

from kproxy.linux.host import HostError
from kproxy.model.network import Family, Protocol
from kproxy.proxy.relay import connection, fleet, queries, wire
from kproxy.proxy.relay.fleet import drain_workers, end_workers
from kproxy.proxy.relay.places import worker_path, worker_places
from kproxy.proxy.relay.queries import answer_queries, query_relays
from kproxy.proxy.relay.relay import LocalRelay
from kproxy.proxy.relay.table import RelayPort
from kproxy.proxy.relay.worker import Worker
from kproxy.proxy.relay.workers import WorkerRelay
from tests.support.waiting import eventually

COUNT = 2
_opened: list[WorkerRelay] = []


@pytest.fixture(autouse=True)
def own_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries find the relays of this test alone: others run in the same network namespace."""
    every, own = queries._sockets, (str(tmp_path), f"@kproxy-relay-{os.getpid()}-")
    monkeypatch.setattr(queries, "_sockets", lambda: [path for path in every() if path.startswith(own)])


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Worker]]:
    """Two workers, in threads of this process."""
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    made = [Worker(worker_path(index, COUNT), first_turn=index / COUNT) for index in range(COUNT)]
    threads = [threading.Thread(target=one.run) for one in made]
    for thread in threads:
        thread.start()
    yield made
    leave_all()  # a relay waits for workers that end before it is left
    for one in made:
        one.end()
    for thread in threads:
        thread.join()


@pytest.fixture
def endpoint() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()


def relay_of(count: int = 0, *, keep_sources: bool = True) -> WorkerRelay:
    """The daemon's end of the workers, left when the test is over."""
    _opened.append(WorkerRelay(Family.IPV4, count, keep_sources=keep_sources))
    return _opened[-1]


def leave_all() -> None:
    while _opened:
        _opened.pop().close()


@pytest.fixture(autouse=True)
def left() -> Iterator[None]:
    yield
    leave_all()


def port(endpoint: tuple[str, int], name: str = "default/web", **fields: object) -> RelayPort:
    given = {"protocol": Protocol.TCP, **fields}
    return RelayPort(service=name, address="127.0.0.1", port=0, endpoints=(endpoint,), **given)  # type: ignore[arg-type]


def serve(relay: WorkerRelay, *ports: RelayPort) -> list[int]:
    numbers = relay.open_missing(ports)
    relay.update(ports)
    return [numbers[one.key] for one in ports]


def sockets_of(worker: Worker, of: RelayPort) -> bool:
    return any(of.key in relay.numbers() for relay in worker.relays)


def test_a_tcp_port_is_every_workers_and_one_with_affinity_or_of_udp_is_one_workers(
    workers: list[Worker], endpoint: tuple[str, int]
) -> None:
    plain = port(endpoint)
    sticky = port(endpoint, "default/sticky", affinity_seconds=60)
    datagrams = port(endpoint, "default/dns", protocol=Protocol.UDP)
    serve(relay_of(), plain, sticky, datagrams)
    assert [sum(sockets_of(one, of) for one in workers) for of in (plain, sticky, datagrams)] == [2, 1, 1]


def test_a_reply_that_comes_too_late_is_not_taken_for_the_next_one(
    workers: list[Worker], endpoint: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_ANSWER_SECONDS", 0.3)
    ports = [port(endpoint, f"default/web-{number}") for number in range(3)]
    relay = relay_of()
    serve(relay, ports[0])
    with ExitStack() as busy:
        for each in (each for worker in workers for each in worker.relays):
            busy.enter_context(each._lock)
        with pytest.raises(HostError, match=r"relay worker \d did not answer for 0\.3 s"):
            relay.open_missing(ports[:2])
    for _ in range(3):
        assert relay.open_missing(ports).keys() == {one.key for one in ports}


def test_counts_do_not_wait_for_a_sync(workers: list[Worker], endpoint: tuple[str, int]) -> None:  # noqa: ARG001
    """They are served by the thread that answers ``/livez``."""
    relay = relay_of()
    serve(relay, port(endpoint))
    before = relay.count()
    with relay._lock:
        assert relay.count() is before
    assert relay.count() is not before


def test_a_request_of_an_earlier_daemon_does_not_undo_what_the_next_one_wants(
    workers: list[Worker], endpoint: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker queries connection tracking for the first one meanwhile, and the daemon is killed."""
    old, new = (port(where, protocol=Protocol.UDP) for where in (endpoint, ("127.0.0.2", 1)))
    begun, go_on, real = threading.Event(), threading.Event(), LocalRelay._doubt_flows

    def slow(relay: LocalRelay, before: Iterable[RelayPort], now: Iterable[RelayPort]) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(5)
        real(relay, before, now)

    monkeypatch.setattr(LocalRelay, "_doubt_flows", slow)
    earlier, later = relay_of(), relay_of()
    wanted = (earlier, old), (later, new)
    updates = [threading.Thread(target=one.update, args=([each],)) for one, each in wanted]
    updates[0].start()
    assert begun.wait(5)
    updates[1].start()
    time.sleep(0.1)
    go_on.set()
    for update in updates:
        update.join()
    served = [each for one in workers for relay in one.relays for each in relay._served.values()]
    assert served == [new]


def test_a_worker_that_cannot_be_replaced_is_tried_again_after_pauses(
    workers: list[Worker],  # noqa: ARG001
    endpoint: tuple[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    relay = relay_of()
    serve(relay, port(endpoint))
    monkeypatch.setattr(relay, "_is_replaced", lambda _: len(pauses) == 9)
    monkeypatch.setattr("kproxy.proxy.relay.workers.time.sleep", pauses.append)
    ended = mock.Mock()
    relay._watch(ended)
    ended.await_end.assert_called_once()
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0]


def test_a_daemon_that_comes_again_finds_ports_and_numbers_and_closes_what_is_no_longer_wanted(
    workers: list[Worker], endpoint: tuple[str, int]
) -> None:
    stays, goes = port(endpoint), port(endpoint, "default/other")
    (number, _) = serve(relay_of(), stays, goes)
    again = relay_of()
    assert again.open_missing([stays]) == {stays.key: number}
    assert all(sockets_of(one, goes) for one in workers), "rules still lead there"
    again.update([stays])
    assert not any(sockets_of(one, goes) for one in workers)
    assert again.count().open_connections == 0


def test_workers_of_another_release_give_their_sockets_to_new_ones(
    workers: list[Worker], endpoint: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    web = port(endpoint)
    (number,) = serve(relay_of(), web)
    monkeypatch.setattr(fleet, "RELEASE", "next")
    newer = [Worker(worker_path(index, COUNT, "next")) for index in range(COUNT)]
    for one in newer:
        threading.Thread(target=one.run, daemon=True).start()
    assert serve(relay_of(), web) == [number]
    assert not any(sockets_of(one, web) for one in workers)
    assert all(sockets_of(one, web) for one in newer)
    for one in newer:
        one.end()


@pytest.mark.parametrize("wanted", [1, 3])
def test_another_number_of_workers_takes_the_sockets_of_those_that_run(
    workers: list[Worker], endpoint: tuple[str, int], wanted: int
) -> None:
    ports = (
        port(endpoint),
        *(port(endpoint, f"default/sticky-{number}", affinity_seconds=60) for number in range(4)),
    )
    numbers = serve(relay_of(), *ports)
    other = [Worker(worker_path(index, wanted)) for index in range(wanted)]
    for one in other:
        threading.Thread(target=one.run, daemon=True).start()
    assert serve(relay_of(), *ports) == numbers, "any number that runs is taken"
    assert serve(relay_of(wanted), *ports) == numbers
    assert not any(sockets_of(one, each) for one in workers for each in ports)
    assert [sum(sockets_of(one, each) for one in other) for each in ports] == [wanted, 1, 1, 1, 1]
    with socket.create_connection(("127.0.0.1", numbers[1])):
        pass
    for one in other:
        one.end()


def test_connections_from_clients_addresses_are_reset_once_where_those_are_not_kept(
    workers: list[Worker], endpoint: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reset: list[LocalRelay] = []

    def count(relay: LocalRelay) -> None:
        reset.append(relay)

    monkeypatch.setattr(LocalRelay, "reset_kept_sources", count)
    serve(relay_of(), port(endpoint))
    assert not reset
    changed = relay_of(keep_sources=False)
    for _ in range(2):
        serve(changed, port(endpoint))
    assert len(reset) == len(workers)


def test_a_worker_without_a_daemon_closes_its_ports_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: tuple[str, int]
) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    alone = Worker(worker_path(0, 1), lease_seconds=0.6)
    thread = threading.Thread(target=alone.run)
    thread.start()
    relay = relay_of()
    serve(relay, port(endpoint))
    time.sleep(1.5)
    assert thread.is_alive(), "its daemon is there"
    relay.close()
    thread.join(20)
    assert not thread.is_alive()
    assert worker_places() == ()


def test_a_relay_that_is_left_while_a_worker_ends_connects_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: tuple[str, int]
) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    ended = Worker(worker_path(0, 1))
    thread = threading.Thread(target=ended.run)
    thread.start()
    relay = relay_of()
    serve(relay, port(endpoint))
    with relay._lock:  # who has noticed the end waits for it
        ended.end()
        for connection in list(ended._attached):  # as the end of its process does
            connection.shutdown(socket.SHUT_RDWR)
        thread.join()
        time.sleep(0.3)
        successor = Worker(worker_path(0, 1))
        thread = threading.Thread(target=successor.run)
        thread.start()
        relay._leave()
    assert not eventually(lambda: successor.relays, 1.0)
    serve(relay, port(endpoint))
    assert successor.relays, "in use again, it does connect"
    relay.close()
    successor.end()
    thread.join()


def test_a_clean_up_ends_workers_and_another_mode_closes_their_ports(
    workers: list[Worker], endpoint: tuple[str, int]
) -> None:
    web = port(endpoint)
    serve(relay_of(), web)
    assert not drain_workers(Family.IPV4), "there are no connections"
    assert not any(sockets_of(one, web) for one in workers)
    leave_all()  # a daemon that runs waits for workers that end: they are started again
    end_workers()
    assert worker_places() == ()


def test_connections_go_on_when_the_mode_is_another_and_their_workers_end_after_them_or_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: tuple[str, int]
) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    monkeypatch.setattr("kproxy.proxy.relay.worker.DRAIN_SECONDS", 3.0)
    one = Worker(worker_path(0, 1))
    thread = threading.Thread(target=one.run)
    thread.start()
    (number,) = serve(relay_of(), port(endpoint))
    with socket.create_connection(("127.0.0.1", number), timeout=10) as client:
        assert eventually(lambda: one.relays[0].open_connections)
        assert drain_workers(Family.IPV4), "a connection is open"
        leave_all()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", number))
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            assert drain_workers(Family.IPV4), "looks do not end it"
            assert thread.is_alive()
        thread.join(20)
        assert not thread.is_alive(), "nor do they prolong its time"
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_without_a_folder_the_reason_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/proc/none")
    with pytest.raises(HostError, match="RUNTIME_DIRECTORY"):
        relay_of().update([])


def found_of(port: RelayPort, number: int, client: str = "127.0.0.1") -> dict[str, wire.FoundSocket]:
    query = wire.FindSocket(port.address, number, port.protocol, client)
    answers = {name: one for name, one in query_relays(query) if isinstance(one, wire.FoundSocket)}
    return {name: one for name, one in answers.items() if one.port is not None}


def test_a_query_finds_the_next_endpoint_of_each_worker_and_what_a_client_has_open(
    workers: list[Worker], endpoint: tuple[str, int]
) -> None:
    plain = port(endpoint)
    sticky = port(endpoint, "default/sticky", affinity_seconds=60)
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(endpoint)  # else the kernel would refuse, and the flow end
    datagrams = port(endpoint, "default/dns", protocol=Protocol.UDP)
    numbers = serve(relay_of(), plain, sticky, datagrams)
    assert list(found_of(plain, numbers[0])) == ["worker 0 of 2", "worker 1 of 2"]
    assert len(found_of(datagrams, numbers[2])) == 1
    assert not found_of(plain, numbers[1] + 1000)
    assert [one.bound for one in found_of(sticky, numbers[1]).values()] == [False]
    with (
        socket.create_connection(("127.0.0.1", numbers[1])),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sender.sendto(b"x", ("127.0.0.1", numbers[2]))
        assert eventually(lambda: all(one.open for one in found_of(sticky, numbers[1]).values()))
        (held,) = found_of(sticky, numbers[1]).values()
        assert (held.endpoint, held.bound, held.open) == (endpoint, True, [(endpoint, 1)])
        (other,) = found_of(sticky, numbers[1], "192.0.2.9").values()
        assert (other.bound, other.open) == (False, [])
        assert eventually(
            lambda: all(one.open == [(endpoint, 1)] for one in found_of(datagrams, numbers[2]).values())
        )
    silent.close()
    assert len(workers) == COUNT


def test_a_relay_in_a_daemon_answers_queries_and_no_other_message(endpoint: tuple[str, int]) -> None:
    relay = LocalRelay(first_turn=0.0)
    relay.start()
    served = port(endpoint)
    relay.update([served])
    number = relay.numbers()[served.key]
    answer_queries(relay)
    assert found_of(served, number)["the daemon"].endpoint == endpoint
    (path,) = (one for one in queries._sockets() if one.startswith("@"))
    for request in (wire.EndWorker(), wire.ServePorts([(port(endpoint, "x" * wire.MOST_QUERY_BYTES), 0)])):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect("\0" + path[1:])
            received = b""
            with suppress(ConnectionError):  # it closes at once
                wire.send(stranger, request)
                received = stranger.recv(1)
            assert not received
    assert found_of(served, number)["the daemon"].endpoint == endpoint
    relay.close()


def test_a_worker_that_cannot_answer_is_named(tmp_path: Path) -> None:
    place = tmp_path / "relay-1-0.0.1-0of1"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        place.unlink()
        query = wire.FindSocket("127.0.0.1", 1, Protocol.TCP, "127.0.0.1")
        answers = dict(query_relays(query))
    assert isinstance(answers["worker 0 of 1"], FileNotFoundError)


def test_a_parent_gives_up_what_fails_at_its_start(tmp_path: Path) -> None:
    """The control is a folder whose name is short enough for a socket."""
    with parent_of_one(tmp_path / "short") as parent:
        assert parent.stderr
        assert "relay worker" in parent.stderr.readline()
        assert parent.poll() is None
    with parent_of_one(tmp_path / ("long" * 30)) as parent:
        _, log = parent.communicate(timeout=20)
        assert "AF_UNIX path too long" in log
        assert parent.returncode == 1


@contextmanager
def parent_of_one(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "kproxy.proxy.relay", "1"]
    environment = {**os.environ, "RUNTIME_DIRECTORY": str(folder)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as parent:
        yield parent
        parent.terminate()
