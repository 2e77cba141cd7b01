"""Who may query the relay inside a daemon: every process of its network namespace can connect to an abstract Unix socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from kproxy.model.network import Protocol
from kproxy.proxy.relay import queries, wire
from kproxy.proxy.relay.queries import answer_queries
from kproxy.proxy.relay.relay import LocalRelay

NOBODY = 65534
ANSWERED, CLOSED, OTHERWISE = range(3)


@pytest.fixture
def path() -> Iterator[str]:
    """The abstract address of a relay in this process."""
    relay = LocalRelay()
    relay.start()
    before = queries._sockets()
    answer_queries(relay)
    own = f"@kproxy-relay-{os.getpid()}-"
    (found,) = (one for one in queries._sockets() if one.startswith(own) and one not in before)
    yield "\0" + found[1:]
    relay.close()


def queried_by(user: int, path: str) -> int:
    """Result of a query by a process of another user."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    result = OTHERWISE
    try:
        os.setresuid(user, user, user)
        with socket.socket(socket.AF_UNIX) as to:
            to.settimeout(5)
            to.connect(path)
            try:
                wire.send(to, wire.FindSocket("192.0.2.1", 1, Protocol.TCP, "192.0.2.2"))
                reply, _ = wire.receive_reply(to)
                result = ANSWERED if isinstance(reply, wire.FoundSocket) else OTHERWISE
            except ConnectionError:
                result = CLOSED
    finally:
        os._exit(result)


def test_a_relay_in_a_daemon_answers_root_and_its_own_user_alone(path: str) -> None:
    assert [queried_by(user, path) for user in (0, NOBODY, 0)] == [ANSWERED, CLOSED, ANSWERED]


def test_a_daemon_that_is_not_roots_answers_its_own_user(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert [queried_by(user, path) for user in (NOBODY, NOBODY - 1, 0)] == [ANSWERED, CLOSED, ANSWERED]
