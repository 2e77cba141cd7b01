"""Messages between the lab's clients and servers.

Pure. A request is a magic (by which captures know it), the probe's number, the size of the padding that follows, and
the padding; a reply is a JSON line with the server's name and the addresses it saw, and the same padding. Both go
into a stream or into one datagram.
"""

from __future__ import annotations

import struct

import msgspec

from kproxy.lab.probes.observation import Reception, Socket, address_from_text

MAGIC = b"kpx1"
_HEADER = struct.Struct("!4sII")
REQUEST_HEADER = _HEADER.size
MAX_PADDING = 1 << 20
_BYTES = bytes(range(256)) * 2


class Reply(msgspec.Struct):
    """Line of a reply: the server's name, the local address of the request, its source, and the padding's size."""

    probe: int
    who: str
    address: str
    port: int
    peer: str
    peer_port: int
    size: int = 0

    @property
    def reception(self) -> Reception:
        """The reply as a `Reception`."""
        at = Socket(address_from_text(self.address), self.port)
        return Reception(self.who, at, Socket(address_from_text(self.peer), self.peer_port))


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Reply)


class BadMessageError(ValueError):
    """Bytes that are no message of the lab."""


def padding(probe: int, size: int) -> bytes:
    """Padding of a probe with this size; different for neighbouring probes."""
    if not size:
        return b""
    begin = probe & 0xFF
    pattern = _BYTES[begin : begin + 251]
    return (pattern * (size // len(pattern) + 1))[:size]


def encode_request(probe: int, size: int = 0) -> bytes:
    """A request with its padding."""
    return _HEADER.pack(MAGIC, probe, size) + padding(probe, size)


def decode_request(data: bytes) -> tuple[int, int] | None:
    """The probe's number and the padding's size from a request's first bytes; None if more are needed.

    Raises `BadMessageError` for any other data.
    """
    if not data.startswith(MAGIC[: len(data)]):
        raise BadMessageError(repr(data[:16]))
    if len(data) < REQUEST_HEADER:
        return None
    _, probe, size = _HEADER.unpack_from(data)
    if size > MAX_PADDING:
        message = f"padding of {size} bytes"
        raise BadMessageError(message)
    return probe, size


def encode_reply(reply: Reply, padding: bytes) -> bytes:
    """A reply with the padding it returns."""
    return _encoder.encode(reply) + b"\n" + padding


def decode_reply(data: bytes) -> tuple[Reply, bytes] | None:
    """Reply and padding once all bytes are there; None if more are needed.

    Raises `BadMessageError` for any other data.
    """
    if not data.startswith(b"{"[: len(data)]):
        raise BadMessageError(repr(data[:80]))
    line, newline, rest = data.partition(b"\n")
    if not newline:
        return None
    try:
        reply = _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise BadMessageError(str(error)) from error
    return (reply, rest) if len(rest) >= reply.size else None
