"""Queries about the relay's sockets: which endpoint a client's packet would come to, asked by `kproxy trace`.

Workers answer at their Unix sockets, which root alone may reach.  The relay inside a daemon answers at an abstract one: it needs no folder and
leaves no file, but every process of the network namespace reaches it, so it answers root and the daemon's own user alone.  Both are found by ``/proc/net/unix``, which
lists the sockets of one network namespace.  A query changes nothing.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from kproxy.linux.sockets import user_of_peer
from kproxy.proxy.relay import wire
from kproxy.proxy.relay.places import place_at
from kproxy.proxy.relay.relay import LocalRelay

_SOCKETS = Path("/proc/thread-self/net/unix")
_IN_DAEMON = "@kproxy-relay-"
_SECONDS = 2.0

log = logging.getLogger(__name__)


def find_socket(relays: Iterable[LocalRelay], query: wire.FindSocket) -> wire.FoundSocket:
    """The socket that one of a process's relays has there."""
    found = (relay.find(query) for relay in relays)
    return next((one for one in found if one.port is not None), wire.FoundSocket())


def answer_queries(relay: LocalRelay) -> None:
    """Answer queries about the relay of this process, in a thread."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"{_IN_DAEMON}{os.getpid()}-{secrets.token_hex(8)}".replace("@", "\0"))
        listener.listen()
    except OSError as error:
        log.info("kproxy trace will not see the relay: %s", error)
        listener.close()
        return
    threading.Thread(target=_answer, args=(listener, relay), name="relay queries", daemon=True).start()


def _answer(listener: socket.socket, relay: LocalRelay) -> None:
    while True:
        with suppress(OSError, msgspec.MsgspecError):
            client, _ = listener.accept()
            with client:
                client.settimeout(_SECONDS)
                if user_of_peer(client) not in {0, os.geteuid()}:
                    continue
                wire.send(client, relay.find(wire.receive_query(client)))


def query_relays(query: wire.FindSocket) -> Iterator[tuple[str, wire.FoundSocket | OSError]]:
    """The answer of each relay process of this network namespace, by its name, or why it has none."""
    for path in _sockets():
        place = place_at(path)
        if place is not None:
            yield f"worker {place.index} of {place.count}", _query(path, query)
        elif path.startswith(_IN_DAEMON):
            yield "the daemon", _query("\0" + path[1:], query)


def _sockets() -> tuple[str, ...]:
    """Paths of Unix sockets, each once: accepted ones have that of their listener."""
    rows = (line.split(maxsplit=7) for line in _SOCKETS.read_text(errors="replace").splitlines()[1:])
    return tuple(sorted({row[7] for row in rows if len(row) == 8}))


def _query(path: str, query: wire.FindSocket) -> wire.FoundSocket | OSError:
    with socket.socket(socket.AF_UNIX) as to:
        to.settimeout(_SECONDS)
        try:
            to.connect(path)
            wire.send(to, query)
            reply, _ = wire.receive_reply(to)
        except msgspec.MsgspecError as error:
            return ConnectionError(f"it is of another release: {error}")
        except OSError as error:
            return error
    assert isinstance(reply, wire.FoundSocket)
    return reply
