"""Effective configuration from flags and file.

Between `kproxy.proxy.daemon.config.flags`, `kproxy.proxy.daemon.config.load` and the actions of
`kproxy.proxy.daemon.command`. Pure: the file is passed in as bytes. A file overrides all flags, except logging flags
and the node's name (``cfg.file-wins``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kproxy.proxy.daemon.config.configuration import (
    DEFAULT_MODE,
    HEALTHZ_PORT,
    METRICS_PORT,
    Configuration,
    append_port,
    with_addresses,
)
from kproxy.proxy.daemon.config.duration import Duration
from kproxy.proxy.daemon.config.flag_table import (
    HOSTNAME_OVERRIDE,
    LOGGING,
    MASQUERADE,
    SETTINGS,
    SYNC_SECTION,
    FlagRow,
)
from kproxy.proxy.daemon.config.flags import ParsedFlags, Value
from kproxy.proxy.daemon.config.load import InvalidConfiguration, decode_configuration, read_configuration
from kproxy.proxy.daemon.config.validation import FieldError, validation_errors
from kproxy.proxy.daemon.config.write import section_fields, to_yaml

HOST_NAME = HOSTNAME_OVERRIDE.flag.name
_FLAG_PERIODS = {"syncPeriod": "30s", "minSyncPeriod": "1s"}
"""Defaults of the flags in every mode: iptables mode's (``cfg.ipvs-minsync-flag-skew``)."""

_EMPTY_IS_UNSET = frozenset(
    {"proxy-mode", "bind-address", "healthz-bind-address", "metrics-bind-address", "detect-local-mode"}
)
"""Flags whose empty value leaves the default."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A valid configuration, and warnings about flags and file."""

    config: Configuration
    warnings: tuple[str, ...] = ()


def resolve(given: ParsedFlags, file: bytes | None) -> Resolved:
    """Configuration of a command line; ``file`` is the content of the file that ``--config`` names.

    Raises `InvalidConfiguration` with all errors.
    """
    config, warnings = (_resolve_flags(given), ()) if file is None else _resolve_file(given, file)
    config = with_name(config, given)
    if found := validation_errors(config):
        raise InvalidConfiguration(found)
    return Resolved(config, (*given.warnings, *warnings))


def with_name(config: Configuration, given: ParsedFlags) -> Configuration:
    """Configuration with the node's name from its flag, where it is given (``cfg.hostname-override``).

    Raises `InvalidConfiguration` for a blank name; an empty one counts as not given.
    """
    text = given.text(HOST_NAME)
    if not text:
        return config
    name = text.strip().lower()
    if not name:
        raise InvalidConfiguration((FieldError("--" + HOST_NAME, text, "must not be blank"),))
    return msgspec.structs.replace(config, hostname_override=name)


def unwritable_fields(config: Configuration) -> tuple[str, ...]:
    """Fields that would not be read back as they are: v1alpha1 takes a zero for "not given" in most of them."""
    again = read_configuration(to_yaml(config)).config
    return tuple(_differences(section_fields(config), section_fields(again), ""))


def _resolve_file(given: ParsedFlags, file: bytes) -> tuple[Configuration, tuple[str, ...]]:
    loaded = read_configuration(file)
    config = _with_flags(loaded.config, given, LOGGING)
    ignored = sorted(row.flag.name for row in SETTINGS if row.flag.name in given.values)
    beside = [f"--{name} does not count beside --config" for name in ignored]
    return config, (*loaded.warnings, *beside)


def _resolve_flags(given: ParsedFlags) -> Configuration:
    given = ParsedFlags(
        {name: value for name, value in given.values.items() if value != "" or name not in _EMPTY_IS_UNSET}
    )
    mode = given.text("proxy-mode") or DEFAULT_MODE
    start = section_fields(with_addresses(Configuration(mode=mode)))
    if mode == "ipvs":
        start["ipvs"].update(_FLAG_PERIODS)
    config = _with_flags(decode_configuration(start), given, (*SETTINGS, *LOGGING))
    return msgspec.structs.replace(
        config,
        mode=mode,
        healthz_bind_address=_address(config.healthz_bind_address, given, "healthz-port", HEALTHZ_PORT),
        metrics_bind_address=_address(config.metrics_bind_address, given, "metrics-port", METRICS_PORT),
    )


def _address(text: str, given: ParsedFlags, flag: str, port: int) -> str:
    """Address with its port; empty for port 0 (``cfg.legacy-flags``)."""
    wanted = given.values.get(flag, port)
    return append_port(text, int(wanted)) if isinstance(wanted, int) and wanted else ""


def _with_flags(config: Configuration, given: ParsedFlags, rows: Sequence[FlagRow]) -> Configuration:
    """Configuration with the fields of the given flags set."""
    found = section_fields(config)
    for row in rows:
        path = _field(row, config.mode)
        if row.flag.name in given.values and path:
            _set(found, path.split("."), given.values[row.flag.name])
    return decode_configuration(found)


def _field(row: FlagRow, mode: str) -> str:
    """Configuration field of a flag in a mode; empty where it has none."""
    if SYNC_SECTION in row.field and mode == "ipvs":
        return ""
    own = mode if mode == "nftables" else DEFAULT_MODE
    return row.field.replace(SYNC_SECTION, own).replace(MASQUERADE, own)


def _set(found: dict[str, Any], path: list[str], value: Value) -> None:
    *sections, last = path
    for name in sections:
        found = found.setdefault(name, {})
    found[last] = _PLAIN.get(last, _plain)(value, found.get(last))


def _plain(value: Value, _before: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Duration) else value


def _patterns(value: Value, before: object) -> list[dict[str, object]]:
    """Patterns of the flag, which have precedence, and of the file."""
    ours = dict(value) if isinstance(value, Mapping) else {}
    items: list[dict[str, object]] = [
        {"filePattern": name, "verbosity": level} for name, level in ours.items()
    ]
    return items + (before if isinstance(before, list) else [])


_PLAIN: Mapping[str, Callable[[Value, object], object]] = {"vmodule": _patterns}


def _differences(ours: dict[str, Any], theirs: dict[str, Any], path: str) -> Iterator[str]:
    for name, value in ours.items():
        other = theirs.get(name)
        if isinstance(value, dict) and isinstance(other, dict) and value.keys() == other.keys():
            yield from _differences(value, other, f"{path}{name}.")
        elif value != other:
            yield f"{path}{name}: {value!r} will be read as {other!r}"
