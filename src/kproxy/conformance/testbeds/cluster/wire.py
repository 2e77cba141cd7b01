"""JSON encoding of messages between harness and agents: values of known classes, tagged by name. Pure.

msgspec decodes no union of dataclasses and no union of address classes, and observations are full of both. So each
value carries its class's name, and only classes of `CLASSES` are instantiated.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import msgspec

from kproxy.conformance.testbeds.cluster import messages
from kproxy.lab.lab import Traced
from kproxy.lab.probes import echo, http
from kproxy.lab.probes import observation as lab
from kproxy.model.network import Family, Protocol

CLASSES: dict[str, type[Any]] = {
    one.__name__: one
    for one in (
        *messages.COMMANDS,
        *messages.REPLIES,
        *(lab.ProbeRequest, lab.Socket, lab.Sighting, lab.Reception, lab.Evidence, lab.Icmp),
        *(lab.Answered, lab.Refused, lab.Reset, lab.Silent, lab.NetworkError, lab.Garbled, lab.Unsupported),
        *(echo.EchoReply, http.Response, Traced),
    )
}
"""Dataclasses that may be in a message."""

_ENUMS: dict[str, type[enum.Enum]] = {one.__name__: one for one in (Protocol, Family, lab.Direction)}
_IS = "is"


class BadMessage(ValueError):
    """Data that is no message between harness and agents."""


def encode_agent_message(value: object) -> bytes:
    """A message as JSON."""
    return msgspec.json.encode(_plain(value))


def decode_agent_message(data: bytes) -> Any:  # noqa: ANN401 (whatever was encoded)
    """Value of a message; sequences are decoded as tuples. Raises `BadMessage`."""
    try:
        return _value(msgspec.json.decode(data))
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        raise BadMessage(f"{type(error).__name__}: {error}") from error


def _plain(value: object) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case tuple() | list():
            return [_plain(item) for item in value]
        case dict():
            return {_IS: "dict", "items": [[_plain(key), _plain(item)] for key, item in value.items()]}
        case bytes():
            return {_IS: "bytes", "base64": base64.b64encode(value).decode()}
        case IPv4Address() | IPv6Address():
            return {_IS: "address", "text": str(value)}
        case enum.Enum():
            return {_IS: type(value).__name__, "value": value.value}
        case _ if type(value).__name__ in CLASSES and dataclasses.is_dataclass(value):
            fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return {_IS: type(value).__name__, **fields}
    raise TypeError(f"{type(value).__name__} is in no message")


def _value(plain: Any) -> Any:  # noqa: ANN401 (JSON in, values out)
    match plain:
        case list():
            return tuple(_value(item) for item in plain)
        case {"is": "dict", "items": items}:
            return {_value(key): _value(item) for key, item in items}
        case {"is": "bytes", "base64": text}:
            return base64.b64decode(text)
        case {"is": "address", "text": text}:
            return ip_address(text)
        case {"is": name, "value": value} if name in _ENUMS:
            return _ENUMS[name](value)
        case dict():
            fields = {str(key): _value(item) for key, item in plain.items() if key != _IS}
            return CLASSES[plain[_IS]](**fields)
        case _:
            return plain
