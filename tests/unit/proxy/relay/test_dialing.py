"""Where an endpoint is dialled from.  A socket with another's address needs CAP_NET_ADMIN: the catalogue shows those."""

from __future__ import annotations

import socket

import pytest

from kproxy.model.network import Protocol
from kproxy.proxy.relay.dialing import dial, keep_alive, source_for
from kproxy.proxy.relay.table import RelayPort

ENDPOINT = ("10.244.1.11", 8080)
ON_NODE = ("172.18.0.2", 8080)
PORT = RelayPort(
    service="default/web:",
    protocol=Protocol.TCP,
    address="172.18.0.2",
    port=0,
    endpoints=(ENDPOINT, ON_NODE),
    on_node=frozenset({ON_NODE}),
)
CLIENT = ("198.51.100.7", 40000)


@pytest.mark.parametrize(
    ("client", "endpoint", "keeps", "expected"),
    [
        (CLIENT, ENDPOINT, False, None),
        (CLIENT, ENDPOINT, True, CLIENT),
        (CLIENT, ON_NODE, False, CLIENT),
        (("127.0.0.1", 40000), ON_NODE, True, None),
        (("::1", 40000), ON_NODE, True, None),
    ],
    ids=["rewritten", "kept", "what stays on the node", "loopback", "IPv6 loopback"],
)
def test_the_source_is_the_clients_where_it_keeps_its_address(
    client: tuple[str, int], endpoint: tuple[str, int], expected: tuple[str, int] | None, *, keeps: bool
) -> None:
    assert source_for(client, endpoint, PORT, keeps_source=keeps) == expected


def test_a_client_that_is_the_endpoint_is_dialled_from_the_node() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = server.getsockname()
        with dial(endpoint, socket.SOCK_STREAM, ("127.0.0.1", 1)) as made:
            peer, address = server.accept()
            assert made.getsockname() == address
            assert address[1] != 1
            peer.close()


def test_the_kernel_watches_for_peers_that_vanish_on_both_sides() -> None:
    """A real connection: what a listening socket has, its connections have (tcp(7))."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        keep_alive(listener)
        with dial(listener.getsockname(), socket.SOCK_STREAM, None) as dialled:
            accepted, _ = listener.accept()
            with accepted:
                for one in (dialled, accepted):
                    assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                    assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
