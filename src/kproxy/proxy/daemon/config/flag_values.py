"""Value of every flag for ``/flagz``: the given value, or the default.

Beside `kproxy.proxy.daemon.config.resolve`; pure. With ``--config`` most flags have no effect: ``/configz`` has the
configuration in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kproxy.proxy.daemon.config.configuration import HEALTHZ_PORT, METRICS_PORT
from kproxy.proxy.daemon.config.flag_table import MASQUERADE, ROWS, SYNC_SECTION, FlagRow
from kproxy.proxy.daemon.config.flags import FlagType, ParsedFlags
from kproxy.proxy.daemon.config.resolve import resolve
from kproxy.proxy.daemon.config.write import section_fields

_OWN_DEFAULTS: Mapping[str, object] = {
    "healthz-port": HEALTHZ_PORT,
    "metrics-port": METRICS_PORT,
    "ipvs-min-sync-period": "1s",
    "log-json-info-buffer-size": "0",
    "log-text-info-buffer-size": "0",
    "boot-id-file": "/proc/sys/kernel/random/boot_id",
    "machine-id-file": "/etc/machine-id,/var/lib/dbus/machine-id",
}


def flag_values(given: ParsedFlags) -> dict[str, str]:
    """Values as text in pflag's format, by name, in alphabetical order."""
    defaults = section_fields(resolve(ParsedFlags(), None).config)
    found = {row.flag.name: given.values.get(row.flag.name, _default(row, defaults)) for row in ROWS}
    return {name: _format_value(found[name]) for name in sorted(found)}


def _default(row: FlagRow, config: dict[str, Any]) -> object:
    if row.flag.name in _OWN_DEFAULTS:
        return _OWN_DEFAULTS[row.flag.name]
    if not row.field:
        return False if row.flag.type in {FlagType.BOOL, FlagType.VERSION} else ""
    path = row.field.replace(SYNC_SECTION, "iptables").replace(MASQUERADE, "iptables").split(".")
    found: Any = config
    for name in path:
        found = found.get(name, {})
    return found or {FlagType.BOOL: False, FlagType.LIST: [], FlagType.INT: 0}.get(row.flag.type, found or "")


def _format_value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case list() | tuple():
            return f"[{','.join(map(str, value))}]"
        case Mapping():
            return ",".join(f"{name}={_format_value(one)}" for name, one in sorted(value.items()))
        case _:
            return str(value)
