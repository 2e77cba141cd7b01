"""Decoder of an ``events.k8s.io/v1`` Event in Kubernetes' protobuf encoding, as kube-proxy posts it.

All other requests to this server are JSON; a client whose contentType is ``application/vnd.kubernetes.protobuf``
still encodes the Events it writes so. Pure.

Envelope: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding Wire format:
https://protobuf.dev/programming-guides/encoding/ Field numbers: ``generated.proto`` of k8s.io/api/events/v1, core/v1
and apimachinery meta/v1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MAGIC = b"k8s\x00"

Reader = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class MessageField:
    """JSON form of one field number; unlisted numbers are skipped."""

    name: str
    read: Reader


Message = Mapping[int, MessageField]


def read_event(data: bytes) -> dict[str, Any]:
    """Event as its JSON document; ValueError when it is not one, or truncated."""
    if not data.startswith(MAGIC):
        raise ValueError("no Kubernetes protobuf envelope")
    try:
        envelope = _read(data[len(MAGIC) :], _ENVELOPE)
        event = _read(envelope.get("raw", b""), _EVENT)
    except (IndexError, AttributeError, TypeError, OverflowError) as error:
        raise ValueError(f"malformed protobuf: {error}") from error
    type_meta = envelope.get("typeMeta")
    if type_meta != {"apiVersion": "events.k8s.io/v1", "kind": "Event"}:
        raise ValueError(f"protobuf is read for events.k8s.io/v1 Event only, not {type_meta}")
    return {**type_meta, **event}


def _read(data: bytes, message: Message) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for number, value in _fields(data):
        field = message.get(number)
        if field is None:
            continue
        shown = field.read(value)
        if isinstance(shown, dict) and isinstance(document.get(field.name), dict):
            document[field.name] |= shown
        elif shown not in ("", None, {}):
            document[field.name] = shown
    return document


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        length, position = _length(wire_type, data, position)
        if position + length > len(data):
            raise ValueError("malformed protobuf: cut short")
        yield number, data[position : position + length]
        position += length


def _length(wire_type: int, data: bytes, position: int) -> tuple[int, int]:
    match wire_type:
        case 1:
            return 8, position
        case 2:
            return _varint(data, position)
        case 5:
            return 4, position
        case _:
            raise ValueError(f"malformed protobuf: wire type {wire_type}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if not byte & 0x80:
            return value, position


def _text(value: bytes) -> str:
    return value.decode()


def _int32(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _message(message: Message) -> Reader:
    return lambda value: _read(value, message)


def _time(value: bytes) -> str | None:
    parts = _read(value, _TIMESTAMP)
    if not parts:
        return None
    moment = datetime.fromtimestamp(parts.get("seconds", 0), UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}Z"


def _micro_time(value: bytes) -> str | None:
    parts = _read(value, _TIMESTAMP)
    whole = _time(value)
    return whole and f"{whole[:-1]}.{parts.get('nanos', 0) // 1000:06}Z"


def _entry(value: bytes) -> dict[str, str]:
    parts = _read(value, {1: MessageField("key", _text), 2: MessageField("value", _text)})
    return {parts.get("key", ""): parts.get("value", "")}


def _texts(*names: str) -> dict[int, MessageField]:
    return {number: MessageField(name, _text) for number, name in enumerate(names, 1) if name}


_ENVELOPE = {
    1: MessageField("typeMeta", _message(_texts("apiVersion", "kind"))),
    2: MessageField("raw", bytes),
}
_TIMESTAMP = {1: MessageField("seconds", _int32), 2: MessageField("nanos", _int32)}
_REFERENCE = _message(
    _texts("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
)
_METADATA = _texts("name", "generateName", "namespace") | {
    11: MessageField("labels", _entry),
    12: MessageField("annotations", _entry),
}
_SERIES = {1: MessageField("count", _int32), 2: MessageField("lastObservedTime", _micro_time)}
_EVENT = _texts("", "", "", "reportingController", "reportingInstance", "action", "reason") | {
    1: MessageField("metadata", _message(_METADATA)),
    2: MessageField("eventTime", _micro_time),
    3: MessageField("series", _message(_SERIES)),
    8: MessageField("regarding", _REFERENCE),
    9: MessageField("related", _REFERENCE),
    10: MessageField("note", _text),
    11: MessageField("type", _text),
    12: MessageField("deprecatedSource", _message(_texts("component", "host"))),
    13: MessageField("deprecatedFirstTimestamp", _time),
    14: MessageField("deprecatedLastTimestamp", _time),
    15: MessageField("deprecatedCount", lambda value: _int32(value) or None),
}
