"""What clients and servers of the lab send each other survives the wire, in whatever pieces it comes."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.lab.probes import message
from kproxy.lab.probes.message import BadMessageError, Reply
from kproxy.lab.probes.observation import Reception, Socket

numbers = st.integers(0, 2**32 - 1)
sizes = st.integers(0, 5000)


@given(numbers, sizes)
def test_a_request_is_read_as_soon_as_its_header_is_there(number: int, size: int) -> None:
    data = message.encode_request(number, size)
    assert len(data) == message.REQUEST_HEADER + size
    assert message.decode_request(data[: message.REQUEST_HEADER - 1]) is None
    assert message.decode_request(data[: message.REQUEST_HEADER]) == (number, size)


@given(numbers, st.integers(1, 5000), st.data())
def test_a_reply_is_read_only_when_all_of_it_is_there(number: int, size: int, data: st.DataObject) -> None:
    reply = Reply(number, "a1", "10.0.0.1", 8080, "fd00::1", 40000, size)
    body = message.padding(number, size)
    wire = message.encode_reply(reply, body)
    cut = data.draw(st.integers(0, len(wire) - 1))
    assert message.decode_reply(wire[:cut]) is None
    assert message.decode_reply(wire) == (reply, body)


def test_a_reply_reports_who_where_and_from_whom() -> None:
    reply = Reply(1, "a1", "10.0.0.1", 8080, "10.0.0.9", 40000)
    at, peer = Socket(ip_address("10.0.0.1"), 8080), Socket(ip_address("10.0.0.9"), 40000)
    assert reply.reception == Reception("a1", at, peer)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1", b"kpx1" + b"\xff" * 8])
def test_a_stranger_is_not_taken_for_a_client(data: bytes) -> None:
    with pytest.raises(BadMessageError):
        message.decode_request(data)


@pytest.mark.parametrize("data", [b"HTTP/1.1 400", b"{}\n", b'{"who": 1}\n'])
def test_a_stranger_is_not_taken_for_a_server(data: bytes) -> None:
    with pytest.raises(BadMessageError):
        message.decode_reply(data)


def test_neighbouring_probes_carry_different_bytes() -> None:
    assert message.padding(1, 300) != message.padding(2, 300)
    assert message.padding(1, 0) == b""
