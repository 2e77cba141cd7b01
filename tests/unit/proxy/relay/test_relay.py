"""The relay on real sockets of loopback: endpoints that answer, refuse, hang, die; both directions; limits.

Each test of a failure has the endpoint that works beside it: the same client is served there.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address

import msgspec
import pytest

from kproxy.linux.conntrack import Socket
from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Protocol
from kproxy.proxy.plan import PoolScope
from kproxy.proxy.relay import datagrams, untracking
from kproxy.proxy.relay.relay import LocalRelay
from kproxy.proxy.relay.table import RelayEndpoint, RelayFrontend, RelayPort
from kproxy.proxy.relay.wire import FindSocket

Handler = Callable[[socket.socket], None]


def echo(peer: socket.socket) -> None:
    with peer, suppress(OSError):  # the client may have gone: ENOTCONN is no ConnectionError
        while data := peer.recv(1 << 16):
            peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)


class Servers:
    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []

    def tcp(self, handler: Handler) -> RelayEndpoint:
        listener = self._keep(socket.create_server(("127.0.0.1", 0), backlog=64))

        def accept() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=handler, args=(peer,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return place(listener)

    def refusing(self, kind: socket.SocketKind = socket.SOCK_STREAM) -> RelayEndpoint:
        """Bound and never listening (UDP: closed again), so that the kernel refuses."""
        made = self._keep(socket.socket(socket.AF_INET, kind))
        made.bind(("127.0.0.1", 0))
        found = place(made)
        if kind == socket.SOCK_DGRAM:
            made.close()
        return found

    def hanging(self) -> RelayEndpoint:
        """A full backlog: the kernel drops further SYNs."""
        listener = self._keep(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = self._keep(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(place(listener))
        return place(listener)

    def udp(self, name: bytes) -> RelayEndpoint:
        made = self._keep(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        made.bind(("127.0.0.1", 0))

        def answer() -> None:
            while True:
                try:
                    data, client = made.recvfrom(1 << 16)
                    made.sendto(name + data, client)
                except OSError:
                    return

        threading.Thread(target=answer, daemon=True).start()
        return place(made)

    def _keep(self, made: socket.socket) -> socket.socket:
        self.sockets.append(made)
        return made


@pytest.fixture
def servers() -> Iterator[Servers]:
    made = Servers()
    yield made
    for each in made.sockets:
        each.close()


@pytest.fixture
def relay() -> Iterator[LocalRelay]:
    made = LocalRelay(max_connections=8)
    made.start()
    yield made
    made.close()


def place(bound: socket.socket) -> RelayEndpoint:
    address, port = bound.getsockname()
    return address, port


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return place(probe)[1]


def relayed(
    relay: LocalRelay,
    *endpoints: RelayEndpoint,
    protocol: Protocol = Protocol.TCP,
    affinity: int | None = None,
) -> RelayEndpoint:
    kind = socket.SOCK_STREAM if protocol is Protocol.TCP else socket.SOCK_DGRAM
    port = RelayPort(
        service="default/web:http",
        protocol=protocol,
        address="127.0.0.1",
        port=free_port(kind),
        endpoints=endpoints,
        serving=frozenset(endpoints),
        affinity_seconds=affinity,
    )
    assert relay.serve([port]) == {port.key: port.port}
    return port.address, port.port


def talk(where: RelayEndpoint, data: bytes = b"hello", *, shutdown: bool = True) -> bytes:
    with socket.create_connection(where, timeout=8) as client:
        client.sendall(data)
        if shutdown:
            client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_bytes_pass_both_ways_and_each_end_is_passed_on(relay: LocalRelay, servers: Servers) -> None:
    where = relayed(relay, servers.tcp(echo))
    data = bytes(range(256)) * (1 << 14)
    received = []
    with socket.create_connection(where, timeout=8) as client:
        reader = threading.Thread(
            target=lambda: received.append(b"".join(iter(lambda: client.recv(1 << 16), b"")))
        )
        reader.start()
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        reader.join(8)
    assert received == [data]


def test_an_endpoint_that_refuses_is_never_noticed(relay: LocalRelay, servers: Servers) -> None:
    where = relayed(relay, servers.refusing(), servers.tcp(echo))
    assert [talk(where) for _ in range(6)] == [b"hello"] * 6
    _settled(lambda: relay.open_connections == 0)
    assert relay.counts.retries >= 3


def test_affinity_leaves_an_endpoint_that_refused(relay: LocalRelay, servers: Servers) -> None:
    where = relayed(relay, servers.refusing(), servers.tcp(echo), affinity=60)
    assert [talk(where) for _ in range(6)] == [b"hello"] * 6
    _settled(lambda: relay.open_connections == 0)
    assert relay.counts.retries == 1


def test_an_endpoint_that_hangs_costs_a_quarter_of_a_second(relay: LocalRelay, servers: Servers) -> None:
    where = relayed(relay, servers.hanging(), servers.tcp(echo))
    started = time.monotonic()
    assert talk(where) == b"hello"
    assert 0.24 <= time.monotonic() - started < 2.0


def test_where_no_endpoint_answers_the_client_is_reset(relay: LocalRelay, servers: Servers) -> None:
    where = relayed(relay, servers.refusing())
    with pytest.raises(ConnectionResetError):
        talk(where, shutdown=False)  # which a reset before it would fail


def test_an_endpoint_that_dies_in_the_middle_ends_its_own_connection_only(
    relay: LocalRelay, servers: Servers
) -> None:
    def die(peer: socket.socket) -> None:
        while peer.recv(100):  # until the client has sent all: a reset before would fail its shutdown
            pass
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()

    where = relayed(relay, servers.tcp(die), servers.tcp(echo))
    with pytest.raises(ConnectionResetError):
        talk(where)
    assert talk(where) == b"hello"


def test_a_connection_stays_when_its_port_closes_and_new_ones_are_refused(
    relay: LocalRelay, servers: Servers
) -> None:
    where = relayed(relay, servers.tcp(echo))
    with socket.create_connection(where, timeout=8) as client:
        client.sendall(b"before")
        assert client.recv(100) == b"before"
        relay.update([])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(where, timeout=8)
        client.sendall(b"after")
        assert client.recv(100) == b"after"


def test_clients_in_the_backlog_of_a_port_that_closes_are_served(servers: Servers) -> None:
    busy = LocalRelay()  # its thread has not come to accept yet
    where = relayed(busy, servers.tcp(echo))
    with socket.create_connection(where, timeout=8) as client:
        busy.update([])
        busy.start()
        client.sendall(b"here")
        assert client.recv(100) == b"here"
    busy.close()


def test_beyond_the_limit_a_client_waits_until_one_goes(relay: LocalRelay, servers: Servers) -> None:
    where = relayed(relay, servers.tcp(echo))
    held = [socket.create_connection(where, timeout=8) for _ in range(8)]
    _settled(lambda: relay.open_connections == 8)
    waiting = socket.create_connection(where, timeout=8)
    waiting.sendall(b"later")
    _settled(lambda: relay.counts.limited > 0)
    assert relay.open_connections == 8
    held.pop().close()
    assert waiting.recv(100) == b"later"
    for one in (waiting, *held):
        one.close()


def test_a_place_that_a_daemon_has_is_reported_and_costs_no_other(
    relay: LocalRelay, servers: Servers
) -> None:
    endpoint = servers.tcp(echo)
    taken = RelayPort(
        service="default/taken:",
        protocol=Protocol.TCP,
        address=endpoint[0],
        port=endpoint[1],
        endpoints=(endpoint,),
    )
    free = RelayPort(
        service="default/free:",
        protocol=Protocol.TCP,
        address="127.0.0.1",
        port=free_port(),
        endpoints=(endpoint,),
    )
    assert relay.serve([taken, free]) == {free.key: free.port}
    assert talk((free.address, free.port)) == b"hello"


def test_datagrams_keep_their_endpoint_until_it_no_longer_serves(relay: LocalRelay, servers: Servers) -> None:
    first, second = servers.udp(b"1"), servers.udp(b"2")
    where = relayed(relay, first, second, protocol=Protocol.UDP)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(8)
        client.connect(where)
        assert [_exchange(client) for _ in range(3)] == [b"1x"] * 3
        port = RelayPort(
            service="default/web:http",
            protocol=Protocol.UDP,
            address=where[0],
            port=where[1],
            endpoints=(second,),
            serving=frozenset({second}),
        )
        relay.update([port])
        assert _exchange(client) == b"2x"


def test_a_datagram_that_is_refused_is_sent_again_to_the_next(relay: LocalRelay, servers: Servers) -> None:
    where = relayed(relay, servers.refusing(socket.SOCK_DGRAM), servers.udp(b"2"), protocol=Protocol.UDP)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(8)
        client.connect(where)
        assert _exchange(client) == b"2x"


def _exchange(client: socket.socket) -> bytes:
    client.send(b"x")
    return client.recv(100)


def _settled(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _flow(relay: LocalRelay, *tables: RelayPort | None) -> list[bytes]:
    """Answers to one client's datagrams, one for each port that is all that is served; None: nothing is, for a moment."""
    answers = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("127.0.0.1", 0))
        client.settimeout(8)
        for port in tables:
            relay.update([] if port is None else [port])
            if port is not None:
                client.sendto(b"x", (port.address, port.port))
                answers.append(client.recv(100))
    return answers


def test_a_flow_whose_socket_closes_goes_on_by_another_of_its_service(
    relay: LocalRelay, servers: Servers
) -> None:
    """``conntrack.udp.stays-on-policy-change``: the pool changes, the client's endpoint still serves."""
    first, second = servers.udp(b"1"), servers.udp(b"2")
    before = _udp_port(first, second, scope=PoolScope.CLUSTER)
    after = _udp_port(second, scope=PoolScope.LOCAL, serving=(first, second))
    assert _flow(relay, before, after) == [b"1x", b"1x"]
    assert _flow(relay, after) == [b"2x"], "a new client has the new pool"


def test_a_flow_is_not_taken_over_where_its_endpoint_is_gone(relay: LocalRelay, servers: Servers) -> None:
    first, second = servers.udp(b"1"), servers.udp(b"2")
    before = _udp_port(first, scope=PoolScope.CLUSTER)
    after = _udp_port(second, scope=PoolScope.LOCAL, serving=(second,))
    assert _flow(relay, before, after) == [b"1x", b"2x"]


def test_a_flow_is_not_taken_over_once_its_endpoint_was_gone(relay: LocalRelay, servers: Servers) -> None:
    """``conntrack.udp.moves-off-removed-endpoint``: nothing serves for a moment; without that, the flow would stay."""
    first, second = servers.udp(b"1"), servers.udp(b"2")
    before = _udp_port(first, second, scope=PoolScope.CLUSTER)
    after = _udp_port(second, scope=PoolScope.LOCAL, serving=(first, second))
    assert _flow(relay, before, None, after) == [b"1x", b"2x"]


def _moved_flow(relay: LocalRelay, servers: Servers, lost: frozenset[RelayFrontend]) -> list[bytes]:
    """Answers to one client whose frontend leads to the pool of all endpoints, then to that of the second, and whose endpoint then ends.

    ``lost``: frontends that the first pool does not have any more then; it stays open for others.
    """
    first, second, third = servers.udp(b"1"), servers.udp(b"2"), servers.udp(b"3")
    both = frozenset({RelayFrontend("10.96.0.1", 53), RelayFrontend("", 30053)})
    cluster = _udp_port(first, third, scope=PoolScope.CLUSTER, serving=(first, second, third))
    cluster = msgspec.structs.replace(cluster, frontends=both)
    local = _udp_port(second, scope=PoolScope.LOCAL, serving=(first, second, third))
    local = msgspec.structs.replace(local, frontends=lost)
    answers = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("127.0.0.1", 0))
        client.settimeout(8)
        without = msgspec.structs.replace(cluster, frontends=both - lost)
        ended = msgspec.structs.replace(local, serving=frozenset({second, third}))
        for port, table in ((cluster, (cluster,)), (local, (local, without)), (local, (ended, without))):
            relay.update(table)
            client.sendto(b"x", (port.address, port.port))
            answers.append(client.recv(100))
    return answers


def test_a_flow_follows_its_frontend_to_another_pool_and_chooses_there_when_its_endpoint_ends(
    relay: LocalRelay, servers: Servers
) -> None:
    """``conntrack.udp.stays-on-policy-change``, ``internal-policy.local.same-node``: both sockets are open."""
    assert _moved_flow(relay, servers, frozenset({RelayFrontend("", 30053)})) == [b"1x", b"1x", b"2x"]


def test_a_client_of_two_pools_has_a_flow_in_each(relay: LocalRelay, servers: Servers) -> None:
    """No frontend has changed its pool: the flow of the one is not that of the other."""
    assert _moved_flow(relay, servers, frozenset()) == [b"1x", b"2x", b"2x"]


CLUSTER_IP, NODE_PORT, EXTERNAL_IP = (
    RelayFrontend("10.96.0.1", 53),
    RelayFrontend("", 30053),
    RelayFrontend("10.96.9.9", 53),
)


@pytest.mark.parametrize(
    ("one_after_the_other", "sends_meanwhile", "last"),
    [(True, False, b"2x"), (True, True, b"1x"), (False, False, b"2x")],
)
def test_a_flow_ends_with_its_frontend_but_goes_on_when_its_client_sends(
    relay: LocalRelay, servers: Servers, last: bytes, *, one_after_the_other: bool, sends_meanwhile: bool
) -> None:
    """Universe 51020: a node port was gone, and back by another policy; what came then had the source of the flow of before.

    Connection tracking has no entry here, so only the next datagram shows which frontend a flow comes by: one that there still is.
    """
    first, second = servers.udp(b"1"), servers.udp(b"2")
    cluster = _udp_port(first, scope=PoolScope.CLUSTER, serving=(first, second))
    with_both, with_one = (
        msgspec.structs.replace(cluster, frontends=frozenset(frontends))
        for frontends in ((CLUSTER_IP, NODE_PORT), (CLUSTER_IP,))
    )
    local = _udp_port(second, scope=PoolScope.LOCAL, serving=(first, second))
    back = {NODE_PORT} if one_after_the_other else set()
    local = msgspec.structs.replace(local, frontends=frozenset({CLUSTER_IP, *back}))
    moved = msgspec.structs.replace(cluster, frontends=frozenset())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("127.0.0.1", 0))
        client.settimeout(8)

        def exchange(port: RelayPort) -> bytes:
            client.sendto(b"x", (port.address, port.port))
            return client.recv(100)

        relay.update((with_both,))
        assert exchange(cluster) == b"1x"
        if one_after_the_other:
            relay.update((with_one,))
        assert not sends_meanwhile or exchange(cluster) == b"1x"
        relay.update((local, moved))
        assert exchange(local) == last


@pytest.mark.parametrize("moves_at_once", [True, False])
@pytest.mark.parametrize(
    ("came_by", "last"),
    [(("172.18.0.2", 30053), b"1x"), (("10.96.9.9", 53), b"2x"), (None, b"2x")],
    ids=["node port", "external IP", "unknown"],
)
def test_a_flow_stays_where_its_own_frontend_moves_as_another_goes(
    relay: LocalRelay,
    servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
    came_by: tuple[str, int] | None,
    last: bytes,
    *,
    moves_at_once: bool,
) -> None:
    """Universes 52003 and 55014: external IPs go as the policy becomes Local, or just before, and clients with a shortcut still come by the node port."""

    def found(_: Socket, clients: Iterable[Socket]) -> dict[Socket, Socket]:
        return {} if came_by is None else dict.fromkeys(clients, (ip_address(came_by[0]), came_by[1]))

    monkeypatch.setattr(datagrams, "find_destinations", found)
    first, second = servers.udp(b"1"), servers.udp(b"2")
    shortcut = RelayFrontend(NODE_PORT.address, NODE_PORT.port, shortcut=True)
    cluster = _udp_port(first, scope=PoolScope.CLUSTER, serving=(first, second))
    both, one, left = (
        msgspec.structs.replace(cluster, frontends=frozenset(frontends))
        for frontends in ((NODE_PORT, EXTERNAL_IP), (NODE_PORT,), (shortcut,))
    )
    local = _udp_port(second, scope=PoolScope.LOCAL, serving=(first, second))
    local = msgspec.structs.replace(local, frontends=frozenset({NODE_PORT}))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("127.0.0.1", 0))
        client.settimeout(8)
        answers = []
        for port, table in ((both, (both,)), (local, (local, left))):
            relay.update(table)
            client.sendto(b"x", (port.address, port.port))
            answers.append(client.recv(100))
            if not moves_at_once:
                relay.update((one,))
    assert answers == [b"1x", last]


def test_a_flow_outlasts_that_its_frontend_leads_nowhere(relay: LocalRelay, servers: Servers) -> None:
    """A policy is Local before the node's endpoint is known, and the client sends nothing meanwhile (``conntrack.udp.stays-on-policy-change``)."""
    first, second = servers.udp(b"1"), servers.udp(b"2")
    frontends = frozenset({RelayFrontend("10.96.0.1", 53)})
    cluster = _udp_port(first, scope=PoolScope.CLUSTER, serving=(first, second))
    cluster = msgspec.structs.replace(cluster, frontends=frontends)
    nowhere = msgspec.structs.replace(cluster, endpoints=())
    local = _udp_port(second, scope=PoolScope.LOCAL, serving=(first, second))
    local = msgspec.structs.replace(local, frontends=frontends)
    moved = msgspec.structs.replace(nowhere, frontends=frozenset())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("127.0.0.1", 0))
        client.settimeout(8)
        answers = []
        for port, table in ((cluster, (cluster,)), (None, (nowhere,)), (local, (local, moved))):
            relay.update(table)
            if port is not None:
                client.sendto(b"x", (port.address, port.port))
                answers.append(client.recv(100))
    assert answers == [b"1x", b"1x"]


def test_a_socket_without_endpoints_serves_the_flows_that_it_has_and_no_others(
    relay: LocalRelay, servers: Servers
) -> None:
    """As where a policy has become Local and the node has no endpoint (``conntrack.udp.stays-on-policy-change``)."""
    first = servers.udp(b"1")
    port = _udp_port(first)
    kept = msgspec.structs.replace(port, endpoints=())
    with _clients_of(port, 2) as (held, late):
        relay.update((port,))
        held.send(b"x")
        assert held.recv(100) == b"1x"
        relay.update((kept,))
        late.send(b"x")
        held.send(b"y")
        assert held.recv(100) == b"1y"
        query = FindSocket(address=port.address, number=port.port, protocol=Protocol.UDP, client="10.0.0.9")
        assert (relay.find(query).port, relay.find(query).endpoint) == (kept, None)
        relay.update((port,))
        late.send(b"z")
        assert late.recv(100) == b"1z", "its first datagram was lost"


def test_entries_that_cannot_be_deleted_are_logged_once_and_tried_again(
    relay: LocalRelay, servers: Servers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not for each datagram that a client sends to a socket where nothing is chosen; the flow that is there goes on."""
    clients: list[Socket] = []

    def refuse(_: Socket, sockets: Iterable[Socket]) -> None:
        clients.extend(sockets)
        if len(clients) < 4:
            raise HostError("delete conntrack entry", "Operation not permitted", Reason.OTHER)

    monkeypatch.setattr(untracking, "delete_flows_answered_by", refuse)
    monkeypatch.setattr(untracking, "AGAIN_SECONDS", 0.02)
    port = _udp_port(servers.udp(b"1"))
    relay.update((port,))
    with _clients_of(port, 2) as (held, late):
        assert _exchange(held) == b"1x"
        relay.update((msgspec.structs.replace(port, endpoints=()),))
        late.send(b"x")
        _settled(lambda: len(clients) == 4)
        assert _exchange(held) == b"1x"
        assert {number for _, number in clients} == {late.getsockname()[1]}
    assert len(caplog.messages) == 1
    assert "are still led here" in caplog.text


def test_a_kernel_that_takes_its_time_holds_up_no_client(
    relay: LocalRelay, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Universe 53017: while a node's writes were slow, its relay deleted one entry after the other and served nobody."""
    answered = threading.Event()
    monkeypatch.setattr(untracking, "delete_flows_answered_by", lambda *_: answered.wait(8))
    port = _udp_port(servers.udp(b"1"))
    relay.update((port,))
    with _clients_of(port, 2) as (held, late):
        assert _exchange(held) == b"1x"
        relay.update((msgspec.structs.replace(port, endpoints=()),))
        late.send(b"x")
        assert _exchange(held) == b"1x"
        answered.set()


def test_rules_decide_about_the_client_of_an_endpoint_that_has_left(
    relay: LocalRelay, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Universe 53004: a client of a cluster IP whose policy left nothing was given an endpoint of the external IP's pool."""
    clients: list[Socket] = []
    monkeypatch.setattr(untracking, "delete_flows_answered_by", lambda _, found: clients.extend(found))
    first, second = servers.udp(b"1"), servers.udp(b"2")
    port = _udp_port(first, second)
    relay.update((port,))
    alone = msgspec.structs.replace(port, endpoints=(second,), serving=frozenset({second}))
    with _clients_of(port, 2) as held:
        answers = [_exchange(client) for client in held]
        assert sorted(answers) == [b"1x", b"2x"]
        relay.update((alone,))
        leaves = held[answers.index(b"1x")]
        _settled(lambda: bool(clients))
        assert [number for _, number in clients] == [leaves.getsockname()[1]]


def test_ports_that_are_open_keep_their_endpoints_until_they_are_served_anew(
    relay: LocalRelay, servers: Servers
) -> None:
    first, second = servers.udp(b"1"), servers.udp(b"2")
    port = _udp_port(first)
    changed = msgspec.structs.replace(port, endpoints=(second,), serving=frozenset({second}))
    assert relay.open_missing([port]) == relay.open_missing([changed]) == {port.key: port.port}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(8)
        client.connect((port.address, port.port))
        assert _exchange(client) == b"1x"
        relay.serve([changed])
        assert _exchange(client) == b"2x"


@contextmanager
def _clients_of(port: RelayPort, count: int) -> Iterator[list[socket.socket]]:
    """Clients of a UDP port."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(count)
        ]
        for client in clients:
            client.connect((port.address, port.port))
            client.settimeout(8)
        yield clients


def _udp_port(
    *endpoints: RelayEndpoint,
    scope: PoolScope | None = None,
    serving: tuple[RelayEndpoint, ...] | None = None,
) -> RelayPort:
    return RelayPort(
        service="default/web:http",
        protocol=Protocol.UDP,
        address="127.0.0.1",
        port=free_port(socket.SOCK_DGRAM),
        endpoints=endpoints,
        serving=frozenset(endpoints if serving is None else serving),
        scope=scope,
    )
