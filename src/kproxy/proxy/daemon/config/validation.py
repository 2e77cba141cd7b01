"""Validation of a `Configuration`: one table of rules, all evaluated, so that every bad field is reported at once.

Called by `kproxy.proxy.daemon.config.load`; pure. The rules are kube-proxy's (``cfg.validate``, ``cfg.mode-invalid``,
``cfg.clustercidr-list``, ``cfg.metrics-cannot-disable``, ``cfg.gates``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

import msgspec

from kproxy.model.network import Network, family_of, parse_address, parse_network
from kproxy.proxy.backends import BACKENDS
from kproxy.proxy.daemon.config.configuration import Configuration, DetectLocal, split_host_port
from kproxy.proxy.daemon.config.duration import Duration
from kproxy.proxy.daemon.config.feature_gates import FEATURE_GATES

PRIMARY = "primary"
"""Keyword for the node's own primary addresses in ``nodePortAddresses``.

Clauses ``node-port.addresses.primary.served``, ``node-port.addresses.not-primary.untouched``.
"""

_SCHEDULER = re.compile(r"[\w-]{0,15}", re.ASCII)
"""Syntax of a scheduler's name in IPVS (``IP_VS_SCHEDNAME_MAXLEN``); only the kernel knows which exist."""

LOG_FORMATS = ("text", "json")

MAX_INT32 = 2**31 - 1
"""Largest integer of the API, which has 32 bits."""

MOST_WORKERS = 64
"""Largest number of the relay's workers: more than processors serve nobody."""

MOST_AFFINITY_CLIENTS = 1 << 24
"""Largest number of clients that nftables mode remembers: the kernel allocates 16 bytes for each of them beforehand."""

PREVIOUS_VERSION = "1.35"
"""Release before the one whose metrics are implemented here."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """Invalid field: its path in the file, its value, and the rule it breaks."""

    path: str
    value: object
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {_format_value(self.value)}: {self.text}" if self.path else self.text


@dataclass(frozen=True, slots=True)
class _Rule:
    """Rule: ``holds(configuration)`` is true, or the field at ``path`` (our names) is not what it ``must`` be."""

    path: str
    must: str
    holds: Callable[[Configuration], bool]


def _always(_config: Configuration) -> bool:
    return True


def _in_mode(mode: str) -> Callable[[Configuration], bool]:
    return lambda config: config.mode == mode


def _paced_by_iptables(config: Configuration) -> bool:
    """True if iptables mode's section holds the sync periods; an unknown mode counts as iptables (``cfg.mode-sections``)."""
    return config.sync_section is config.iptables


def _detecting(how: DetectLocal) -> Callable[[Configuration], bool]:
    return lambda config: config.detect_local_mode == how.value


def _within(path: str, low: int, high: int) -> _Rule:
    value = attrgetter(path)
    return _Rule(path, f"must be within [{low}, {high}]", lambda config: low <= value(config) <= high)


def _positive(path: str) -> _Rule:
    value = attrgetter(path)
    return _Rule(path, "must be greater than 0", lambda config: value(config) > Duration())


def _not_negative(path: str) -> _Rule:
    value = attrgetter(path)

    def holds(config: Configuration) -> bool:
        found = value(config)
        return bool(found >= (Duration() if isinstance(found, Duration) else 0))

    return _Rule(path, "must not be negative", holds)


def _periods(section: str) -> tuple[_Rule, ...]:
    part = attrgetter(section)
    return (
        _positive(f"{section}.sync_period"),
        _not_negative(f"{section}.min_sync_period"),
        _Rule(
            f"{section}.sync_period",
            "must not be less than minSyncPeriod",
            lambda config: part(config).sync_period >= part(config).min_sync_period,
        ),
    )


def _networks(path: str) -> _Rule:
    value = attrgetter(path)
    return _Rule(path, "must hold CIDRs only", lambda config: all(_network(cidr) for cidr in value(config)))


def _listens(path: str, *, may_be_empty: bool = False) -> _Rule:
    value = attrgetter(path)

    def holds(config: Configuration) -> bool:
        return (may_be_empty and not value(config)) or split_host_port(value(config)) is not None

    return _Rule(path, "must be IP:port, port within [1, 65535]", holds)


def _network(text: str) -> Network | None:
    """Network of a CIDR; unlike in objects of the API, surrounding spaces are an error."""
    return parse_network(text) if text == text.strip() else None


def _known_mode(config: Configuration) -> bool:
    return config.mode in BACKENDS


def _known_detection(config: Configuration) -> bool:
    return config.detect_local_mode in {how.value for how in DetectLocal}


def _vmodule(config: Configuration) -> bool:
    patterns = config.logging.vmodule
    return not patterns or (
        config.logging.format == "text"
        and all(item.file_pattern and not set("=,") & set(item.file_pattern) for item in patterns)
    )


def _one_network_a_family(config: Configuration) -> bool:
    networks = [_network(text) for text in config.cluster_cidr.split(",") if config.cluster_cidr]
    families = {family_of(network) for network in networks if network is not None}
    return len(families) == len(networks)


def _node_port_addresses(config: Configuration) -> bool:
    given = config.node_port_addresses
    return given == (PRIMARY,) or all(_network(text) is not None for text in given)


_RULES: tuple[tuple[Callable[[Configuration], bool], tuple[_Rule, ...]], ...] = (
    (
        _always,
        (
            _Rule("mode", f"must be one of {', '.join(BACKENDS)}", _known_mode),
            _Rule(
                "detect_local_mode",
                f"must be one of {', '.join(how.value for how in DetectLocal)}",
                _known_detection,
            ),
            _Rule(
                "bind_address",
                "must be an IP address",
                lambda config: parse_address(config.bind_address) is not None,
            ),
            _Rule(
                "node_port_addresses",
                f"must hold CIDRs only, or {PRIMARY} alone",
                _node_port_addresses,
            ),
            _listens("healthz_bind_address", may_be_empty=True),
            _listens("metrics_bind_address"),
            _positive("config_sync_period"),
            _within("client_connection.burst", 0, MAX_INT32),
            _Rule(
                "show_hidden_metrics_for_version",
                f"must be empty or {PREVIOUS_VERSION}",
                lambda config: config.show_hidden_metrics_for_version in {"", PREVIOUS_VERSION},
            ),
            _within("oom_score_adj", -1000, 1000),
            _Rule(
                "logging.format",
                f"must be one of {', '.join(LOG_FORMATS)}",
                lambda config: config.logging.format in LOG_FORMATS,
            ),
            _not_negative("logging.verbosity"),
            _Rule("logging.vmodule", "must have patterns, and is for the text format only", _vmodule),
            _within("iptables.masquerade_bit", 0, 31),
            _within("conntrack.max_per_core", 0, MAX_INT32),
            _within("conntrack.min", 0, MAX_INT32),
            *map(
                _not_negative,
                (
                    "conntrack.tcp_established_timeout",
                    "conntrack.tcp_close_wait_timeout",
                    "conntrack.udp_timeout",
                    "conntrack.udp_stream_timeout",
                ),
            ),
        ),
    ),
    (_paced_by_iptables, _periods("iptables")),
    (_in_mode("userspace"), (_within("userspace.workers", 0, MOST_WORKERS),)),
    (
        _in_mode("nftables"),
        (
            _within("nftables.masquerade_bit", 0, 31),
            _within("nftables.affinity_clients", 1, MOST_AFFINITY_CLIENTS),
            *_periods("nftables"),
        ),
    ),
    (
        _in_mode("ipvs"),
        (
            *_periods("ipvs"),
            *map(_not_negative, ("ipvs.tcp_timeout", "ipvs.tcp_fin_timeout", "ipvs.udp_timeout")),
            _networks("ipvs.exclude_cidrs"),
            _Rule(
                "ipvs.scheduler",
                "must be the name of an IPVS scheduler: at most 15 letters, digits, _ and -",
                lambda config: _SCHEDULER.fullmatch(config.ipvs.scheduler) is not None,
            ),
        ),
    ),
    (
        _detecting(DetectLocal.CLUSTER_CIDR),
        (
            _Rule(
                "cluster_cidr",
                "must be a CIDR, or one of each family with a comma between",
                _one_network_a_family,
            ),
        ),
    ),
    (
        _detecting(DetectLocal.BRIDGE_INTERFACE),
        (
            _Rule(
                "detect_local.bridge_interface",
                "must name an interface",
                lambda config: bool(config.detect_local.bridge_interface),
            ),
        ),
    ),
    (
        _detecting(DetectLocal.INTERFACE_NAME_PREFIX),
        (
            _Rule(
                "detect_local.interface_name_prefix",
                "must not be empty",
                lambda config: bool(config.detect_local.interface_name_prefix),
            ),
        ),
    ),
)


def validation_errors(config: Configuration) -> tuple[FieldError, ...]:
    """All errors of a configuration, in the order of the table; empty when it is valid."""
    return (*_broken_rules(config), *_bad_gates(config))


def _broken_rules(config: Configuration) -> Iterator[FieldError]:
    for applies, rules in _RULES:
        if not applies(config):
            continue
        for rule in rules:
            if not rule.holds(config):
                yield FieldError(_file_path(rule.path), attrgetter(rule.path)(config), rule.must)


def _bad_gates(config: Configuration) -> Iterator[FieldError]:
    for name, wanted in config.feature_gates.items():
        gate = FEATURE_GATES.get(name)
        if gate is None:
            yield FieldError(f"featureGates.{name}", wanted, "unknown feature gate")
        elif gate.locked and wanted != gate.default:
            yield FieldError(f"featureGates.{name}", wanted, f"is locked to {_format_value(gate.default)}")


def _file_path(path: str) -> str:
    """Path of a field by the file's names: ``iptables.sync_period`` is ``iptables.syncPeriod``."""
    kind: type[msgspec.Struct] = Configuration
    names = []
    for name in path.split("."):
        info = next(info for info in msgspec.structs.fields(kind) if info.name == name)
        names.append(info.encode_name)
        kind = info.type
    return ".".join(names)


def _format_value(value: object) -> str:
    match value:
        case Duration():
            return str(value)
        case str() | bool():
            return msgspec.json.encode(value).decode()
        case tuple():
            return msgspec.json.encode(list(value)).decode()
        case _:
            return repr(value)
