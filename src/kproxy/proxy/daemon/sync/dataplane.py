"""Dataplanes of a configuration, one for each family, by the backend of its mode; and removal of other modes' rules.

Between `kproxy.proxy.daemon.startup` and the `ProxyBackend` in the registry of `kproxy.proxy.backends`; knows no mode by name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from kproxy.linux.node_addresses import AddressMonitor
from kproxy.model.network import Family
from kproxy.proxy.backends import (
    BACKENDS,
    SERVICE_DEVICE,
    Applied,
    Dataplane,
    ProxyBackend,
    Relayed,
    WrappedDataplane,
    find_backend,
)
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.lifecycle import StartupError
from kproxy.proxy.daemon.sync.relaying import PortalDataplane, RelayingDataplane, running_relay, worker_relay
from kproxy.proxy.plan import Plan
from kproxy.proxy.relay.fleet import drain_workers, end_workers, reset_kept_sources
from kproxy.proxy.relay.portals import Portals
from kproxy.proxy.relay.worker import DRAIN_SECONDS

_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_IPV6_DISABLED = "net/ipv6/conf/all/disable_ipv6"

_LOOK_SECONDS = 5.0
"""Seconds between two looks at connections that another mode holds, at the least."""

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
    return _TakeoverDataplane(
        opened,
        lambda plan, drain: take_over(plan, config.mode, drain=drain),
        lambda: make_way(family, config.mode),
    )


class Takeover(NamedTuple):
    """Result of one removal of what other modes left: every failure, and whether something stays for held connections."""

    problems: tuple[HostError, ...] = ()
    draining: bool = False


def make_way(family: Family, running: str) -> None:
    """Prepare what other modes left for the first rules of the running one; a failure shows in `take_over` too."""
    for mode in BACKENDS:
        if mode != running:
            try:
                find_backend(mode).make_way(family)
            except HostError as error:
                log.debug("%s: %s mode does not make way: %s", family.value, mode, error)


def take_over(plan: Plan, running: str, *, drain: bool) -> Takeover:
    """Remove rules of other modes, and of the running one where it no longer writes.

    ``drain``: what other modes hold connections by to what the plan serves stays, withdrawn from new ones, as long as there
    are some.
    """
    family = plan.family
    others = [mode for mode in BACKENDS if mode != running]
    held = {mode for mode in others if drain and _holds_connections(find_backend(mode), plan)}
    problems = tuple(
        problem
        for mode in (*others, running)
        if mode not in held
        for problem in find_backend(mode).remove_leftovers(family, running)
    )
    if any(find_backend(mode).relayed is Relayed.EVERYTHING for mode in others if mode not in held):
        reset_kept_sources(family)
    return Takeover(problems, bool(held))


def _holds_connections(backend: ProxyBackend, plan: Plan) -> bool:
    """True if a mode, of which new connections are withdrawn, holds earlier ones; a failure shows in `remove_leftovers` too."""
    try:
        held = backend.drain(plan)
    except HostError as error:
        log.debug("%s: nothing of another mode is drained: %s", plan.family.value, error)
        return False
    return drain_workers(plan.family) if backend.relayed is Relayed.EVERYTHING else held


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
    """Dataplane that removes other modes' rules directly after its first successful `apply`, but what holds connections by and by.

    Some rules exist at every moment (``restart.mode-change.old-rules-removed``).  The old ones must not stay longer:
    they serve Services that were deleted while no proxy ran.  What holds connections is looked at again at checks for
    drift, and goes with the last of them, at the latest after `DRAIN_SECONDS`; and before each later `apply`: what the
    plan serves no longer must answer nobody once its rules are gone.
    """

    def __init__(
        self,
        plane: Dataplane,
        take_over: Callable[[Plan, bool], Takeover],
        make_way: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``take_over``, ``make_way``: those of this family and mode, the first with ``drain``."""
        super().__init__(plane)
        self._take_over, self._make_way, self._clock = take_over, make_way, clock
        self._plan: Plan | None = None
        self._until = 0.0
        self._next: float | None = None

    def apply(self, plan: Plan) -> Applied:
        is_first = self._plan is None
        if is_first:
            self._make_way()
        elif self._next is not None:
            self._clear(plan)
        written = self._plane.apply(plan)
        self._plan = plan
        if is_first:
            self._until = self._clock() + DRAIN_SECONDS
            if self._clear(plan):
                log.info(
                    "%s: connections of another mode go on, for %d s at most",
                    plan.family.value,
                    DRAIN_SECONDS,
                )
        return written

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:
        plan, now = self._plan, self._clock()
        due = self._next is not None and now >= self._next
        if plan is not None and due and not self._clear(plan):
            log.info("%s: what was left for another mode's connections is removed", plan.family.value)
        return self._plane.find_drift(thorough=thorough)

    def _clear(self, plan: Plan) -> bool:
        """Remove what can be removed now; True if there is more to remove later."""
        family = plan.family
        try:
            problems, draining = self._take_over(plan, self._clock() < self._until)
        except HostError as error:
            problems, draining = (error,), False
        for problem in problems:
            if problem.reason is Reason.UNSUPPORTED:
                log.info("%s: rules of other modes were not looked for: %s", family.value, problem)
            else:
                log.warning("%s: of what another mode or proxy left, some stays: %s", family.value, problem)
        self._next = self._clock() + _LOOK_SECONDS if draining else None
        return draining
