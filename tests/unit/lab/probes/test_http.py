"""What is read of an HTTP answer, and of what is none."""

import pytest

from kproxy.lab.probes.http import Response, _parsed


def test_status_headers_and_body_are_read() -> None:
    answer = b"HTTP/1.1 503 Service Unavailable\r\nX-Own: 1\r\nA:b\r\n\r\nbody"
    assert _parsed(answer) == Response(503, b"body", {"x-own": "1", "a": "b"})


@pytest.mark.parametrize(
    "sent", [b"", b"\r\n\r\n", b"hello", b"SSH-2.0-x\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 ok x"]
)
def test_what_is_no_http_is_no_reply(sent: bytes) -> None:
    assert _parsed(sent) is None
