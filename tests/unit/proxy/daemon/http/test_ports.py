"""The listening sockets over real connections on loopback."""

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from ipaddress import ip_address
from typing import NoReturn, cast

import pytest

from kproxy.linux import descriptors
from kproxy.linux.descriptors import Purpose
from kproxy.proxy.daemon.http import ports as ports_module
from kproxy.proxy.daemon.http.ports import HttpServer, ListeningPort, listen_with_retry
from kproxy.proxy.daemon.http.protocol import MAX_HEAD_BYTES, HttpRequest, HttpResponse, text_response
from tests.support.waiting import eventually

FOUR, SIX = ip_address("127.0.0.1"), ip_address("::1")


def echo(request: HttpRequest) -> HttpResponse:
    if request.path == "/crash":
        raise ZeroDivisionError
    if request.path == "/large":
        return text_response("x" * 8_000_000)
    if request.path == "/body":
        return text_response(f"{request.method} {request.path} {request.body.decode()}")
    text = f"{request.method} {request.path} {request.query} {request.headers.get('accept', '')}"
    return HttpResponse(HTTPStatus.OK, text.encode(), "text/plain", {"X-Own": "1"})


@pytest.fixture
def ports() -> Iterator[HttpServer]:
    served = HttpServer()
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            served.poll(0.02)

    thread = threading.Thread(target=serve)
    thread.start()
    yield served
    stop.set()
    thread.join()
    for key in list(served._selector.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    served._selector.close()


@pytest.fixture
def port(ports: HttpServer) -> int:
    return ports.listen(FOUR, 0, echo).port


def fetch(
    port: int, path: str = "/", method: str = "GET", host: str = "127.0.0.1", **headers: str
) -> tuple[HTTPResponse, bytes]:
    with closing(HTTPConnection(host, port, timeout=5)) as connection:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response, response.read()


def listens(port: int, host: str = "127.0.0.1") -> bool:
    try:
        return fetch(port, host=host)[0].status == 200
    except ConnectionRefusedError:
        return False


def test_a_handler_is_given_the_request_and_its_answer_is_sent(port: int) -> None:
    response, body = fetch(port, "/a%20b?x=1", accept="text/plain")
    assert (response.status, body) == (200, b"GET /a b x=1 text/plain")
    assert response.headers["X-Own"] == "1"
    assert response.headers["Content-Type"] == "text/plain"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Connection"] == "close"
    assert response.headers["Date"].endswith("GMT")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /a?b=1 HTTP/1.0\n\n",
        b"GET /a?b=1 HTTP/1.0\nAccept: text/plain\n\n",
        b"GET /a?b=1 HTTP/1.0\r\nAccept: text/plain\n\r\n",
    ],
)
def test_lines_may_end_by_a_line_feed_alone(port: int, sent: bytes) -> None:
    """As Go's server, and RFC 9112, have it."""
    with socket.create_connection((str(FOUR), port), 5) as client:
        client.sendall(sent)
        answer = client.makefile("rb").read()
    accepted = b" text/plain" if b"Accept" in sent else b" "
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nGET /a b=1" + accepted)


def test_head_is_answered_without_a_body_but_with_its_length(port: int) -> None:
    response, body = fetch(port, "/", "HEAD")
    assert body == b""
    assert response.headers["Content-Length"] == str(len("HEAD /  "))


def test_a_handler_that_fails_costs_its_own_request_only(port: int) -> None:
    assert fetch(port, "/crash")[0].status == 500
    assert fetch(port)[0].status == 200


def test_an_answer_larger_than_any_buffer_arrives_whole(port: int) -> None:
    assert fetch(port, "/large")[1] == b"x" * 8_000_000


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET http://[ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / SPDY\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * (MAX_HEAD_BYTES + 1), b"431"),
        (b"PUT / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"PUT / HTTP/1.1\r\nContent-Length: 1025\r\n\r\n", b"413"),
        (b"PUT / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b"413"),
    ],
    ids=["one word", "bad target", "other protocol", "endless head", "bad length", "long body", "huge body"],
)
def test_what_is_no_request_is_refused(port: int, sent: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(sent)
        assert client.recv(4096).split(b" ")[1] == status
    assert fetch(port)[0].status == 200


def test_a_body_is_waited_for_and_no_more_than_it_is_read(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(b"PUT /body HTTP/1.1\r\nContent-Length: 6\r\n\r\nabc")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(5)
        client.sendall(b"defghi")
        received = b"".join(iter(lambda: client.recv(4096), b""))
    assert received.endswith(b"PUT /body abcdef")


def test_clients_that_send_nothing_hold_up_no_other_and_are_closed(
    port: int, ports: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports_module, "CLIENT_TIMEOUT_SECONDS", 0.1)
    with socket.create_connection(("127.0.0.1", port), 5) as silent:
        silent.sendall(b"GET / HT")
        assert fetch(port)[0].status == 200
        assert silent.recv(1) == b""
    assert eventually(lambda: not ports._connections)


def test_of_too_many_clients_the_oldest_goes(
    port: int, ports: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports_module, "MAX_CONNECTIONS", 2)
    with socket.create_connection(("127.0.0.1", port), 5) as first:
        assert eventually(lambda: len(ports._connections) == 1)
        with (
            socket.create_connection(("127.0.0.1", port), 5),
            socket.create_connection(("127.0.0.1", port), 5) as third,
        ):
            assert first.recv(1) == b""
            third.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert third.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_closed_port_is_free_at_once_and_others_go_on(ports: HttpServer, port: int) -> None:
    listener = ports.listen(FOUR, 0, echo)
    number = listener.port
    assert listens(number)
    ports.close(listener)
    assert not listens(number)
    again = ports.listen(FOUR, number, echo)
    assert listens(again.port)
    assert listens(port)


def test_a_wildcard_answers_in_both_families_only_when_that_is_wanted(ports: HttpServer) -> None:
    both = ports.listen(ip_address("0.0.0.0"), 0, echo, both=True)
    assert listens(both.port)
    assert listens(both.port, "::1")
    four = ports.listen(ip_address("0.0.0.0"), 0, echo)
    assert listens(four.port)
    assert not listens(four.port, "::1")
    six = ports.listen(ip_address("::"), four.port, echo)
    assert listens(six.port, "::1")


@pytest.mark.parametrize("address", [FOUR, SIX], ids=str)
def test_an_address_that_is_taken_is_tried_again(
    ports: HttpServer, address: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports_module, "BIND_RETRY_SECONDS", 0.02)
    host = str(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as taken:
        port = taken.getsockname()[1]
        listen_with_retry(ports, "health", (ip_address(host), port), echo, hard_fail=False)
    assert eventually(lambda: listens(port, host))


def test_an_address_that_is_taken_is_fatal_if_requested(ports: HttpServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = (FOUR, taken.getsockname()[1])
        with pytest.raises(OSError, match=r"cannot serve metrics on 127\.0\.0\.1 port"):
            listen_with_retry(ports, "metrics", place, echo, hard_fail=True)


def test_a_retry_waits_five_seconds() -> None:
    assert ports_module.BIND_RETRY_SECONDS == 5.0


class Exhausted:
    """A listener's socket while the process has no descriptor left."""

    def accept(self) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_lack_of_descriptors_is_counted_each_time_and_logged_seldom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [1000.0]
    served = HttpServer(lambda: now[0])
    listener = ListeningPort(cast("socket.socket", Exhausted()), echo)
    before = descriptors.shortages.get(Purpose.CONNECTION, 0)
    for _ in range(5):
        served._accept(listener)
    assert descriptors.shortages[Purpose.CONNECTION] == before + 5
    assert len(caplog.records) == 1
    assert "LimitNOFILE" in caplog.text
    now[0] += 11
    served._accept(listener)
    assert len(caplog.records) == 2


def test_clients_leave_the_last_descriptors_to_the_rest_of_the_daemon(
    port: int, ports: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_connection(("127.0.0.1", port), 5) as first:
        assert eventually(lambda: len(ports._connections) == 1)
        monkeypatch.setattr(descriptors, "is_reserved", lambda _, purpose: purpose is Purpose.CONNECTION)
        assert fetch(port)[0].status == 200, "one at a time goes on"
        assert first.recv(1) == b"", "the oldest went"


def test_an_unforeseen_error_does_not_end_the_thread_of_the_ports(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = HttpServer()
    rounds = iter([RuntimeError("odd"), OSError(9, "Bad file descriptor"), SystemExit()])

    def turn() -> None:
        raise next(rounds)

    monkeypatch.setattr(served, "poll", turn)
    with pytest.raises(SystemExit):
        served.run()
    assert caplog.text.count("a round of the ports failed") == 2
