"""Loader of a configuration file: a `Configuration`, or every reason why there is none.

Two passes as kube-proxy makes them (``cfg.strict-lenient``): what strict decoding would refuse (unknown fields, a key
given twice) becomes a warning, what no decoding can accept (syntax, types, values) an error. Unlike there, all errors
are reported at once, each with the path of its field.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import yaml

from kproxy.documents import syntax_error
from kproxy.proxy.daemon.config.configuration import API_VERSION, KIND, Configuration, Section, with_addresses
from kproxy.proxy.daemon.config.duration import Duration
from kproxy.proxy.daemon.config.plain_scalars import SCALAR_TAGS, PlainScalars, construct_plain
from kproxy.proxy.daemon.config.validation import FieldError, validation_errors

S = TypeVar("S", bound=Section)

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_ZERO_IS_A_VALUE = frozenset(
    {
        "masquerade_bit",
        "localhost_node_ports",
        "keep_sources",
        "oom_score_adj",
        "max_per_core",
        "min",
        "tcp_established_timeout",
        "tcp_close_wait_timeout",
    }
)
"""Optional (pointer) fields of v1alpha1, where zero is a value; in all others zero is the same as absence."""


class InvalidConfiguration(Exception):
    """Invalid configuration; ``validation_errors`` holds every reason, ``str()`` one per line."""

    def __init__(self, problems: tuple[FieldError, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and warnings: what strict decoding would have refused in it."""

    config: Configuration
    warnings: tuple[str, ...]


def load_configuration(text: str | bytes) -> Loaded:
    """Valid `Configuration` from YAML or JSON text, defaults filled in.

    Raises `InvalidConfiguration`.
    """
    loaded = read_configuration(text)
    if found := validation_errors(loaded.config):
        raise InvalidConfiguration(found)
    return loaded


def read_configuration(text: str | bytes) -> Loaded:
    """`Configuration` from YAML or JSON text, defaults filled in, before `kproxy.proxy.daemon.config.validation`.

    Raises `InvalidConfiguration` when the text does not decode.
    """
    document, duplicates = parse_yaml(text)
    decoder = _Decoder()
    config = decoder.section(_document_fields(document), Configuration, "")
    if decoder.errors:
        raise InvalidConfiguration(tuple(decoder.errors))
    return Loaded(with_addresses(config), (*duplicates, *decoder.unknown))


def decode_configuration(fields: dict[str, Any]) -> Configuration:
    """`Configuration` from fields in the file's format, where zeros are values too.

    Raises `InvalidConfiguration` when a value is not of its field's type.
    """
    decoder = _Decoder(zeros_are_meant=True)
    config = decoder.section(fields, Configuration, "")
    if decoder.errors:
        raise InvalidConfiguration(tuple(decoder.errors))
    return config


def parse_yaml(text: str | bytes) -> tuple[object, tuple[str, ...]]:
    """First document of a YAML or JSON text, and a warning for each key that a mapping gives twice (the last counts).

    Further documents are ignored, as by kube-proxy, with a warning. Raises `InvalidConfiguration` when it is neither.
    """
    loader = _DuplicateAware(text)
    try:
        document = loader.get_data() if loader.check_data() else None
        warnings = [*loader.duplicates, *_further_documents(loader)]
    except yaml.YAMLError as error:
        raise InvalidConfiguration(
            (FieldError("", "", f"neither YAML nor JSON: {syntax_error(error)}"),)
        ) from error
    finally:
        loader.dispose()
    return document, tuple(warnings)


def _further_documents(loader: _DuplicateAware) -> list[str]:
    """Warning about further documents, whether or not they are valid YAML."""
    try:
        more = bool(loader.check_data())
    except yaml.YAMLError:
        more = True
    return ["only the first document is read, what follows its end is not"] if more else []


class _DuplicateAware(PlainScalars, _Loader):  # type: ignore[valid-type, misc]
    """YAML loader that records duplicate keys, which PyYAML itself accepts without notice; keys are text, as JSON's."""

    def __init__(self, stream: str | bytes) -> None:
        super().__init__(stream)
        self.duplicates: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a scalar", key.start_mark)
            if key.value in seen:
                self.duplicates.append(f'line {key.start_mark.line + 1}: key "{key.value}" is given twice')
            seen.add(key.value)
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return {_key(key): value for key, value in found.items()}


for _tag in SCALAR_TAGS:
    _DuplicateAware.add_constructor(_tag, construct_plain)


def _key(key: Hashable) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _document_fields(document: object) -> dict[str, Any]:
    """Fields of a document of the right apiVersion and kind (``cfg.api``)."""
    if not isinstance(document, dict):
        raise InvalidConfiguration((FieldError("", "", f"must be a {KIND} ({API_VERSION})"),))
    kind, version = document.pop("kind", None), document.pop("apiVersion", None)
    if (kind, version) != (KIND, API_VERSION):
        raise InvalidConfiguration((FieldError("", "", _another_kind(kind, version)),))
    return document


def _another_kind(kind: object, version: object) -> str:
    """Text about a document that is not of our kind; it may only lack the two lines that say so."""
    need = f"need `apiVersion: {API_VERSION}` and `kind: {KIND}`"
    given = (("apiVersion", version), ("kind", kind))
    missing = " and ".join(name for name, value in given if value is None)
    if missing:
        return f"no {missing}: {need}"
    return f'no kind "{kind}" is registered for version "{version}": {need}'


@dataclass(slots=True)
class _Decoder:
    """Decoder of sections that collects errors instead of stopping at the first."""

    zeros_are_meant: bool = False
    errors: list[FieldError] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def section(self, given: dict[str, Any], kind: type[S], path: str) -> S:
        fields = {info.encode_name: info for info in msgspec.structs.fields(kind)}
        values: dict[str, Any] = {}
        for key, raw in given.items():
            if key not in fields:
                near = difflib.get_close_matches(key, fields, 1)
                meant = f'; did you mean "{path}{near[0]}"?' if near else ""
                self.unknown.append(f'unknown field "{path}{key}"{meant}')
            elif raw is not None:
                self._read(fields[key], raw, path + key, values)
        return kind(**values)

    def _read(self, info: msgspec.structs.FieldInfo, raw: object, path: str, values: dict[str, Any]) -> None:
        if isinstance(info.type, type) and issubclass(info.type, Section):
            if isinstance(raw, dict):
                values[info.name] = self.section(raw, info.type, path + ".")
            else:
                self.errors.append(FieldError(path, raw, "must be an object"))
            return
        try:
            value = _convert(raw, info.type)
        except ValueError as error:
            self.errors.append(FieldError(path, raw, str(error)))
            return
        if value or self.zeros_are_meant or info.name in _ZERO_IS_A_VALUE:
            values[info.name] = value


def _convert(raw: object, kind: type) -> object:
    """A value converted to the field's type; `ValueError` (of which msgspec's own is one) when it cannot be."""
    if kind is not Duration:
        return msgspec.convert(_without_nulls(raw), kind)
    if not isinstance(raw, str):
        raise ValueError("must be a duration such as 30s")  # noqa: TRY004 - a bad value, not a misuse
    return Duration.parse(raw)


def _without_nulls(raw: object) -> object:
    """Map with False for null, which is Go's zero of the only map's values."""
    return {key: value is not None and value for key, value in raw.items()} if isinstance(raw, dict) else raw
