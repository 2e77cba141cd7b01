"""Dataplanes of a configuration, one for each family, by the backend of its mode; and removal of other modes' rules.

Between `kproxy.proxy.daemon.startup` and the `ProxyBackend` in the registry of `kproxy.proxy.backends`; knows no mode by name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from kproxy.linux.node_addresses import AddressMonitor
from kproxy.model.network import Family
from kproxy.proxy.backends import (
    BACKENDS,
    SERVICE_DEVICE,
    Applied,
    Dataplane,
    Relayed,
    WrappedDataplane,
    find_backend,
)
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.lifecycle import StartupError
from kproxy.proxy.daemon.sync.relaying import PortalDataplane, RelayingDataplane, running_relay, worker_relay
from kproxy.proxy.plan import Plan
from kproxy.proxy.relay.fleet import drain_workers, end_workers
from kproxy.proxy.relay.portals import Portals

_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_IPV6_DISABLED = "net/ipv6/conf/all/disable_ipv6"

log = logging.getLogger(__name__)


class UnusableMode(StartupError):
    """The configured mode cannot work on this node; no other mode is tried (``cfg.mode-unusable``)."""


def open_dataplanes(config: Configuration, primary: Family) -> dict[Family, Dataplane]:
    """The dataplane of each family that this machine has; that of the ``primary`` family must work.

    Clause ``objects.dual-stack.node-of-one-family.served``.  Raises `UnusableMode`.
    """
    found: dict[Family, Dataplane] = {}
    for family in Family:
        if family is Family.IPV6 and not ipv6_enabled():
            reason: object = "IPv6 is disabled on this machine"
        else:
            try:
                found[family] = open_dataplane(config, family)
                continue
            except HostError as error:
                reason = error
        if family is primary:
            raise UnusableMode(f"mode {config.mode} cannot serve {family.value}: {reason}")
        log.warning("%s is not served: %s", family.value, reason)
    return found


def ipv6_enabled() -> bool:
    """True if any interface may have an IPv6 address."""
    if not _IPV6_ADDRESSES.exists():
        return False
    try:
        return host.read_sysctl(_IPV6_DISABLED) != "1"
    except HostError:
        return False


def monitor_addresses(family: Family) -> AddressMonitor:
    """Monitor of the node's addresses, without those on `SERVICE_DEVICE`; raises `HostError`."""
    return AddressMonitor(family, SERVICE_DEVICE)


def open_dataplane(config: Configuration, family: Family) -> Dataplane:
    """The mode's dataplane of one family; it removes other modes' rules after its first `apply`.  Raises `HostError`."""
    backend = find_backend(config.mode)
    opened = backend.open_dataplane(config, family)
    localhost = family is Family.IPV4 and config.iptables.localhost_node_ports
    if backend.relayed is Relayed.LOOPBACK and localhost:
        opened = RelayingDataplane(opened, running_relay(family))
    elif backend.relayed is Relayed.EVERYTHING:
        keep_sources = backend.keeps_sources(config, family)
        relay = worker_relay(family, config.userspace.workers, keep_sources=keep_sources)
        addresses = monitor_addresses(family).current
        opened = PortalDataplane(opened, relay, Portals(keep_sources=keep_sources), addresses)
    return _TakeoverDataplane(opened, partial(remove_leftovers, family, config.mode))


def remove_leftovers(family: Family, running: str) -> tuple[HostError, ...]:
    """Remove rules of other modes, and of the running one where it no longer writes; returns every failure."""
    others = [mode for mode in BACKENDS if mode != running]
    problems = tuple(
        problem
        for mode in (*others, running)
        for problem in find_backend(mode).remove_leftovers(family, running)
    )
    if find_backend(running).relayed is not Relayed.EVERYTHING:
        drain_workers(family)
    return problems


def remove_all_modes() -> tuple[HostError, ...]:
    """Remove the rules of every mode in both families, and end the relay; returns every failure, none when the node is clean."""
    problems = tuple(
        problem
        for family in Family
        for mode in BACKENDS
        for problem in find_backend(mode).remove_leftovers(family, None)
    )
    end_workers()
    return problems


class _TakeoverDataplane(WrappedDataplane):
    """Dataplane that removes other modes' rules directly after its first successful `apply`.

    Some rules exist at every moment (``restart.mode-change.old-rules-removed``).  The old ones must not stay longer:
    they serve Services that were deleted while no proxy ran.
    """

    def __init__(self, plane: Dataplane, clear: Callable[[], Iterable[HostError]]) -> None:
        super().__init__(plane)
        self._clear = clear
        self._cleared = False

    def apply(self, plan: Plan) -> Applied:
        return self._schedule_cleanup(self._plane.apply(plan), plan.family)

    def _schedule_cleanup(self, written: Applied, family: Family) -> Applied:
        if not self._cleared:
            self._cleared = True
            self._clear_now(family)
        return written

    def _clear_now(self, family: Family) -> None:
        try:
            problems = tuple(self._clear())
        except HostError as error:
            problems = (error,)
        for problem in problems:
            if problem.reason is Reason.UNSUPPORTED:
                log.info("%s: rules of other modes were not looked for: %s", family.value, problem)
            else:
                log.warning("%s: of what another mode or proxy left, some stays: %s", family.value, problem)
