"""What nf_tables takes of session affinity that no rule for an endpoint would need; see ``docs/findings/nftables-affinity-map.md``.

A map from client and service port to an endpoint, which rules fill with what another map has given.  The syntax of ``nft``
has no word for it, so the expressions are written here one by one.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from threading import Thread

import pytest

from kproxy.lab import namespaces
from kproxy.lab.namespaces import Namespace
from kproxy.linux.netfilter.patterns import RandomNumber
from kproxy.linux.netlink import NetlinkFlag, attribute, nested, netfilter_header
from kproxy.proxy.backends.nftables.kernel import expressions as x
from kproxy.proxy.backends.nftables.kernel import messages as m
from kproxy.proxy.backends.nftables.kernel.batch import Nftables
from kproxy.proxy.backends.nftables.kernel.messages import BatchMessage

ENDPOINTS = [ip_address(f"10.0.0.{number}").packed + struct.pack(">HH", 9000, 0) for number in range(1, 9)]
CLUSTER_IP, PORT = "10.96.0.1", 80
SERVICE = struct.pack("=I", 7)
CREATE = NetlinkFlag.CREATE
SECONDS = 60


def message(kind: int, flags: NetlinkFlag, *attributes: bytes) -> BatchMessage:
    return BatchMessage(
        kind, flags, b"".join((netfilter_header(2), attribute(1, b"affinity\0"), *attributes))
    )


def collection(name: str, number: int, key: int, data: int, flags: int) -> BatchMessage:
    parts = [
        attribute(2, m.encode_string(name)),
        attribute(3, x.be32(flags)),
        attribute(4, x.be32(0)),
        attribute(5, x.be32(key)),
        nested(9, attribute(1, x.be32(1000))),
        attribute(10, x.be32(number)),
    ]
    if data:
        parts += [attribute(6, x.be32(0)), attribute(7, x.be32(data))]
    return message(m.NEW_SET, CREATE, *parts)


def elements(kind: int, name: str, rows: list[tuple[bytes, bytes]]) -> BatchMessage:
    items = [
        nested(1, nested(1, attribute(1, key)), *([nested(2, attribute(1, data))] if data else []))
        for key, data in rows
    ]
    return message(kind, CREATE, attribute(2, m.encode_string(name)), nested(3, *items))


def lookup(name: str, source: int, target: int | None = None) -> bytes:
    found = [x._register(3, target)] if target is not None else []
    return x._expression("lookup", x._string(1, name), x._register(2, source), *found)


def remember(key: int, data: int) -> bytes:
    timeout = attribute(6, struct.pack(">Q", SECONDS * 1000))
    parts = (attribute(3, x.be32(1)), x._register(4, key), x._register(5, data), timeout)
    return x._expression("dynset", x._string(1, "clients"), *parts)


def translate(register: int) -> bytes:
    where = (x._register(3, register), x._register(5, register + 1))
    return x._expression("nat", attribute(1, x.be32(1)), attribute(2, x.be32(2)), *where)


def rule(*expressions: bytes) -> BatchMessage:
    flags = CREATE | NetlinkFlag.APPEND
    return message(m.NEW_RULE, flags, attribute(2, b"output\0"), nested(4, *expressions))


def batch() -> list[BatchMessage]:
    """A table of two rules: registers 0 and 1 hold client and service, 2 and 3 the endpoint of the client, 4 and 5 a new one."""
    to_service = (
        x._payload(1, 16, 4),
        x._compare(0, ip_address(CLUSTER_IP).packed),
    )
    client = (x._payload(1, 12, 4), x._immediate(1, SERVICE))
    hook = nested(4, attribute(1, x.be32(3)), attribute(2, m.encode_be32(-100)))
    return [
        message(m.NEW_TABLE, CREATE, attribute(2, x.be32(0))),
        collection("endpoints", 1, 4, 8, m.SET_MAP),
        collection("usable", 2, 12, 0, 0),
        collection("clients", 3, 8, 8, m.SET_MAP | m.SET_TIMEOUT | m.SET_EVALUATED),
        message(m.NEW_CHAIN, CREATE, attribute(3, b"output\0"), hook, attribute(7, b"nat\0")),
        rule(
            *to_service,
            *client,
            lookup("clients", 0, 2),
            lookup("usable", 1),
            remember(0, 2),
            translate(2),
        ),
        rule(
            *to_service,
            x._numgen(0, RandomNumber(len(ENDPOINTS))),
            lookup("endpoints", 0, 4),
            *client,
            remember(0, 4),
            translate(4),
        ),
        elements(
            m.NEW_ELEMENTS, "endpoints", [(struct.pack("=I", n), one) for n, one in enumerate(ENDPOINTS)]
        ),
        elements(m.NEW_ELEMENTS, "usable", [(SERVICE + one, b"") for one in ENDPOINTS]),
    ]


@contextmanager
def serving(node: Namespace) -> Iterator[None]:
    """Accept on all addresses of the endpoints; each connection gets the address that it has reached."""
    listener = node.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("0.0.0.0", 9000))
    listener.listen(64)
    listener.setblocking(True)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(connection.getsockname()[0].encode())

    Thread(target=serve, daemon=True).start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def reached(node: Namespace, source: str) -> str:
    """Address that a connection of this client reaches by the cluster IP."""
    with node.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.settimeout(5)
        client.bind((source, 0))
        client.connect((CLUSTER_IP, PORT))
        return client.recv(64).decode()


@pytest.fixture
def node() -> Iterator[Namespace]:
    found = namespaces.create_namespace("affinity")
    found.run(("ip", "link", "set", "lo", "up"))
    for number in range(1, 9):
        found.run(("ip", "address", "add", f"10.0.0.{number}/32", "dev", "lo"))
    for number in range(1, 41):
        found.run(("ip", "address", "add", f"10.1.0.{number}/32", "dev", "lo"))
    found.run(("ip", "route", "add", "default", "dev", "lo"))
    yield found
    found.close()


def test_a_rule_remembers_the_endpoint_that_a_map_gave(node: Namespace) -> None:
    with node.entered():
        kernel = Nftables()
    with kernel, serving(node):
        assert kernel.commit(batch()) is None
        clients = [f"10.1.0.{number}" for number in range(1, 41)]
        first = {client: reached(node, client) for client in clients}
        assert len(set(first.values())) > 1, "all clients went to one endpoint: nothing was chosen"
        for _ in range(5):
            assert {client: reached(node, client) for client in clients} == first
        gone = first[clients[0]]
        row = SERVICE + ip_address(gone).packed + struct.pack(">HH", 9000, 0)
        assert kernel.commit([elements(m.DELETE_ELEMENTS, "usable", [(row, b"")])]) is None
        later = {client: {reached(node, client) for _ in range(8)} for client in clients}
        stayed = [client for client in clients if first[client] != gone]
        assert all(later[client] == {first[client]} for client in stayed)
        assert any(later[client] != {gone} for client in clients if first[client] == gone)
