"""A conversation with a real API server, replayed to our watcher byte by byte: kube-apiserver 1.36.2 on etcd 3.6.

Recorded: the answers to the requests that the watcher makes for Services, while Services ``b``, ``c`` and ``d`` came and went and ``a``
went from port 80 to 81; a refusal under load (a FlowSchema that rejects), and a version that was compacted away.  What is
expected was written down from what was done while it was recorded.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from kproxy.linux import host
from kproxy.model.api import Service
from kproxy.proxy.daemon.cluster.client import ApiClient
from kproxy.proxy.daemon.cluster.credentials import Authorizer
from kproxy.proxy.daemon.cluster.kubeconfig import ClientConfig
from kproxy.proxy.daemon.cluster.store import ClusterStore
from kproxy.proxy.daemon.cluster.watch import BACKOFF, SERVICES, Reflector

RECORDED: dict[str, str] = json.loads(
    Path(__file__).with_name("recorded").joinpath("services.json").read_text()
)
IN_THE_MIDDLE_OF_D = RECORDED["changes"].index('"name":"d"') + 4
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection."""


@dataclass
class Server:
    """Sends the answers, one a connection, ``size`` bytes at a time; `requested` are the requests' queries."""

    answers: list[str]
    size: int
    requested: list[dict[str, str]] = field(default_factory=list)

    def run(self, listening: socket.socket) -> None:
        for answer in self.answers:
            connection, _ = listening.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._read(connection)
                data = answer.encode()
                with suppress(ConnectionError):  # a client closes it when it has read enough
                    for at in range(0, len(data), self.size):
                        connection.sendall(data[at : at + self.size])
                if answer is CUT:
                    time.sleep(0.2)  # a reset takes away what was not read yet
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    def _read(self, connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += connection.recv(65536)
        query = parse_qs(urlsplit(request.split()[1].decode()).query, keep_blank_values=True)
        self.requested.append({name: values[0] for name, values in query.items()})


CUT = RECORDED["changes"][:IN_THE_MIDDLE_OF_D]


@contextmanager
def replaying(*answers: str, size: int) -> Iterator[tuple[Reflector, ClusterStore, Server]]:
    store, server = ClusterStore(lambda: 0.0), Server(list(answers), size)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=(listening,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield (
            Reflector(ApiClient(ClientConfig(server=url), Authorizer(None, host.run_tool)), SERVICES, store),
            store,
            server,
        )
        thread.join(5)


def known(store: ClusterStore) -> dict[str, int]:
    """The port of each Service."""
    return {name: (item.spec.ports or [])[0].port for (_, name), item in store.cluster().services.items()}


SIZES = pytest.mark.parametrize("size", [1, 7, 64, 1_000_000])


@SIZES
def test_a_real_servers_conversation_is_understood(size: int) -> None:
    answers = (
        RECORDED[name] for name in ("watch list", "changes", "busy", "the rest", "gone", "watch list again")
    )
    with replaying(*answers, size=size) as (watcher, store, server):
        assert watcher.step() <= BACKOFF.first
        assert store.listed(Service)
        assert known(store) == {"kubernetes": 443, "a": 81}
        watcher.step()
        assert known(store) == {"kubernetes": 443, "a": 81, "c": 80, "d": 80}
        assert 1.0 <= watcher.step() <= 2 * BACKOFF.first, "Retry-After"
        watcher.step()
        assert known(store) == {"kubernetes": 443, "a": 81, "c": 80, "d": 80}
        watcher.step()
        assert known(store) == {"kubernetes": 443, "a": 81, "c": 80, "d": 80}, "what is known stays"
        watcher.step()
        assert known(store) == {"kubernetes": 443, "a": 81, "d": 80}, "c went meanwhile"
    versions = [requested["resourceVersion"] for requested in server.requested]
    assert versions[0] == versions[5] == ""
    assert all(int(version) for version in versions[1:5])
    assert [requested.get("sendInitialEvents") for requested in server.requested] == [
        "true",
        None,
        None,
        None,
        None,
        "true",
    ]


@SIZES
def test_a_stream_that_is_cut_within_an_object_is_taken_up_after_the_last_whole_one(size: int) -> None:
    with replaying(RECORDED["watch list"], CUT, RECORDED["the rest"], size=size) as (watcher, store, server):
        watcher.step()
        watcher.step()
        assert known(store) == {"kubernetes": 443, "a": 81, "c": 80}
        watcher.step()
        assert known(store) == {"kubernetes": 443, "a": 81, "c": 80, "d": 80}
    assert server.requested[2]["resourceVersion"] == "81", "that of c"


@SIZES
def test_its_list_is_understood(size: int) -> None:
    with replaying(RECORDED["list"], RECORDED["the rest"], size=size) as (watcher, store, _):
        watcher._watch_list_offered = False
        watcher.step()
    assert known(store) == {"kubernetes": 443, "a": 81, "d": 80}
