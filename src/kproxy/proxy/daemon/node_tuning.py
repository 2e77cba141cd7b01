"""Settings of the node besides rules: conntrack, the daemon's own OOM score, loopback routing.

Called by `kproxy.proxy.daemon.main` before any rule is written, and by ``--init-only`` alone. A value that the kernel
has already is not written, so that a second run needs no privilege (``cfg.init-only``). ``ip_forward`` is left alone:
iptables and nftables mode expect it set (``life.ip-forward``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from kproxy.model.network import parse_network
from kproxy.proxy.backends import find_backend
from kproxy.proxy.daemon.config.configuration import Configuration, ConntrackSection
from kproxy.proxy.daemon.config.validation import PRIMARY

CONNTRACK_LIMIT = 1_048_576
"""Upper bound of ``maxPerCore`` times cores; ``min`` may be more (``conntrack.liberal.set``)."""

CONNTRACK_LIMIT_HINT = (
    "run with the right to write /proc/sys (a privileged container, `kproxy run --init-only` in one before),"
    " or leave the kernel's limit as it is: conntrack: {maxPerCore: 0, min: 0}"
)
"""Remedy to report when the limit may not be written."""

_CONNTRACK = "net/netfilter/nf_conntrack_"
_MAX = f"{_CONNTRACK}max"
_HASH_SIZE = "/sys/module/nf_conntrack/parameters/hashsize"
_ENTRIES_A_BUCKET = 4
_OOM_SCORE = "/proc/self/oom_score_adj"
_ROUTE_LOCALNET = "net/ipv4/conf/all/route_localnet"

log = logging.getLogger(__name__)


class Sysctl(NamedTuple):
    """Setting below ``/proc/sys``, named with slashes, and its value."""

    name: str
    value: int


def conntrack_max(config: ConntrackSection, cores: int) -> int:
    """Value for nf_conntrack_max; 0 leaves the kernel's own (``conntrack.liberal.set``)."""
    if config.max_per_core <= 0:
        return 0
    scaled = config.max_per_core * cores
    return CONNTRACK_LIMIT if scaled > CONNTRACK_LIMIT else max(scaled, config.min)


def conntrack_sysctls(config: ConntrackSection, cores: int) -> Iterator[Sysctl]:
    """Sysctls to set, the limit first; timeouts in whole seconds, as the kernel counts them, at least 1."""
    limit = conntrack_max(config, cores)
    if limit:
        yield Sysctl(_MAX, limit)
    timeouts = {
        "tcp_timeout_established": config.tcp_established_timeout,
        "tcp_timeout_close_wait": config.tcp_close_wait_timeout,
        "udp_timeout": config.udp_timeout,
        "udp_timeout_stream": config.udp_stream_timeout,
    }
    if config.tcp_be_liberal:
        yield Sysctl(f"{_CONNTRACK}tcp_be_liberal", 1)
    for name, timeout in timeouts.items():
        if timeout:
            yield Sysctl(_CONNTRACK + name, max(1, int(timeout.seconds)))


def set_conntrack(config: ConntrackSection) -> None:
    """Apply the conntrack settings.  Raises `HostError` when the kernel refuses any of them (``conntrack.liberal.set``)."""
    for setting in conntrack_sysctls(config, os.cpu_count() or 1):
        if setting.name == _MAX:
            _set_limit(setting)
        else:
            _set(setting)


def _set_limit(setting: Sysctl) -> None:
    """Set nf_conntrack_max, the only setting that is made by default, and one that containers often may not make."""
    try:
        _set(setting)
        _set_buckets(setting.value // _ENTRIES_A_BUCKET)
    except HostError as error:
        if error.reason is not Reason.DENIED:
            raise
        raise HostError(error.operation, f"{error.detail}; {CONNTRACK_LIMIT_HINT}", error.reason) from error


def _set(setting: Sysctl) -> None:
    """Set a sysctl, after loading nf_conntrack if it is missing, as on a fresh node without rules."""
    try:
        host.write_sysctl(setting.name, str(setting.value))
    except HostError as error:
        if error.reason is not Reason.MISSING:
            raise
        with suppress(HostError):
            host.run_tool(("modprobe", "--", "nf_conntrack"))
        host.write_sysctl(setting.name, str(setting.value))
    log.debug("%s is %d", setting.name, setting.value)


def _set_buckets(wanted: int) -> None:
    """Grow the hash table with the limit; it is never shrunk."""
    if int(host.read_file(_HASH_SIZE)) < wanted:
        host.write_file(_HASH_SIZE, str(wanted))


def set_oom_score(value: int) -> None:
    """Set oom_score_adj, by which the kernel chooses a process to kill for memory; a refusal is only logged.

    In a container without CAP_SYS_RESOURCE it can only be raised, and the kubelet's value, -997 for a pod of the priority
    class ``system-node-critical``, stays: no reason for a warning.
    """
    try:
        if int(host.read_file(_OOM_SCORE)) != value:
            host.write_file(_OOM_SCORE, str(value))
    except HostError as error:
        level = logging.INFO if error.reason is Reason.DENIED else logging.WARNING
        log.log(level, "oom_score_adj is not %d: %s", value, error)


def set_loopback_routing(config: Configuration) -> None:
    """Set route_localnet where loopback addresses accept node ports; with rules it comes after the rule that guards it."""
    if routes_loopback(config):
        host.write_sysctl(_ROUTE_LOCALNET, "1")


def routes_loopback(config: Configuration) -> bool:
    """True if node ports are served at 127.0.0.1 (``node-port.localhost.martian-dropped``)."""
    if not find_backend(config.mode).localhost_node_ports or not config.iptables.localhost_node_ports:
        return False
    given = config.node_port_addresses
    if not given:
        return True
    networks = [parse_network(text) for text in given if text != PRIMARY]
    return any(
        n is not None and n.version == 4 and _overlaps_loopback(n.network_address.packed, n.prefixlen)
        for n in networks
    )


def _overlaps_loopback(address: bytes, prefix: int) -> bool:
    """True if a network overlaps 127.0.0.0/8."""
    bits = min(prefix, 8)
    return address[0] >> (8 - bits) == 127 >> (8 - bits)
