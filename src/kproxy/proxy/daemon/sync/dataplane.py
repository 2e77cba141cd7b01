"""From a configuration to one dataplane a family, by the backend of its mode; and the removal of what other modes left.

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
from kproxy.proxy.backends import BACKENDS, SERVICE_DEVICE, Applied, Dataplane, find_backend
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.lifecycle import StartupError
from kproxy.proxy.plan import Plan

_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_IPV6_DISABLED = "net/ipv6/conf/all/disable_ipv6"

log = logging.getLogger(__name__)


class UnusableMode(StartupError):
    """The configured mode cannot work here; there is no falling back to another (``cfg.mode-unusable``)."""


def open_dataplanes(config: Configuration, primary: Family) -> dict[Family, Dataplane]:
    """One kernel for each family this machine has; the ``primary`` one must work.

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
    """Whether any interface may have an IPv6 address."""
    if not _IPV6_ADDRESSES.exists():
        return False
    try:
        return host.read_sysctl(_IPV6_DISABLED) != "1"
    except HostError:
        return False


def monitor_addresses(family: Family) -> AddressMonitor:
    """The node's addresses, without those that some mode made local for Services; `HostError`."""
    return AddressMonitor(family, SERVICE_DEVICE)


def open_dataplane(config: Configuration, family: Family) -> Dataplane:
    """The mode's dataplane of one family; it removes what other modes left once its own rules stand.  `HostError`."""
    opened = find_backend(config.mode).open_dataplane(config, family)
    return _TakeoverDataplane(opened, partial(remove_leftovers, family, config.mode))


def remove_leftovers(family: Family, running: str) -> tuple[HostError, ...]:
    """Remove what other modes left, and what the running one left where its rules no longer are; every refusal."""
    others = [mode for mode in BACKENDS if mode != running]
    return tuple(
        problem
        for mode in (*others, running)
        for problem in find_backend(mode).remove_leftovers(family, running)
    )


def remove_all_modes() -> tuple[HostError, ...]:
    """Remove what any mode left, of both families; every refusal, none when the node is clean now."""
    return tuple(
        problem
        for family in Family
        for mode in BACKENDS
        for problem in find_backend(mode).remove_leftovers(family, None)
    )


class _TakeoverDataplane:
    """A data plane that takes over from another mode: what that left goes once its own rules stand.

    In this order no connection finds neither (``restart.mode-change.old-rules-removed``), and at once, since
    until then the old rules serve
    what was deleted while no proxy ran.
    """

    def __init__(self, plane: Dataplane, clear: Callable[[], Iterable[HostError]]) -> None:
        self._plane, self._clear = plane, clear
        self._cleared = False

    def apply(self, plan: Plan) -> Applied:
        return self._schedule_cleanup(self._plane.apply(plan), plan.family)

    def _schedule_cleanup(self, written: Applied, family: Family) -> Applied:
        if not self._cleared:
            self._cleared = True
            self._clear_now(family)
        return written

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:
        return self._plane.find_drift(thorough=thorough)

    def refresh_options(self) -> bool:
        return self._plane.refresh_options()

    def forget(self) -> None:
        self._plane.forget()

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
