"""The backends as `kproxy.proxy.daemon.sync.family_sync` wants them: from a configuration to one kernel a family.

With `kproxy.proxy.daemon.sync.leftovers` the only module of the daemon that knows which backends there are; each is imported when
its mode is asked for.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kproxy.linux import host
from kproxy.linux.host import HostError, Reason
from kproxy.linux.node_addresses import AddressMonitor
from kproxy.model.network import Family, family_of, parse_network
from kproxy.proxy.daemon.config.configuration import Configuration, Mode
from kproxy.proxy.daemon.lifecycle import StartupError
from kproxy.proxy.daemon.sync.family_sync import ApplyResult, Dataplane, RuleCounts
from kproxy.proxy.plan import Plan

if TYPE_CHECKING:
    from kproxy.proxy.backends.iptables.kernel import Applied

_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_IPV6_DISABLED = "net/ipv6/conf/all/disable_ipv6"

_RULE_METRIC_TABLES = frozenset({"filter", "nat"})
"""The tables whose rules are worth a metric: mangle has a chain of ours, and no rule."""

log = logging.getLogger(__name__)


class UnusableMode(StartupError):
    """The configured mode cannot work here; there is no falling back to another (``cfg.mode-unusable``)."""


def import_backend(config: Configuration) -> None:
    """Import the backend that `open_dataplanes` will need, before there is a hurry."""
    importlib.import_module(f"kproxy.proxy.backends.{Mode(config.mode).value}.kernel")


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
                found[family] = _plane(config, family)
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
    """The node's addresses, without those that ipvs mode makes local, also where it ran before; `HostError`."""
    from kproxy.proxy.backends.ipvs.names import DEVICE  # noqa: PLC0415

    return AddressMonitor(family, DEVICE)


def read_packet_counters() -> Mapping[str, int]:
    """What rules of iptables mode have counted so far, by metric; empty where they do not count."""
    from kproxy.proxy.backends.iptables.kernel import nfacct  # noqa: PLC0415
    from kproxy.proxy.backends.iptables.rules import PacketCounter  # noqa: PLC0415

    metrics = {
        PacketCounter.INVALID_DROPPED: "iptables_ct_state_invalid_dropped_packets_total",
        PacketCounter.LOCALHOST_ACCEPTED: "iptables_localhost_nodeports_accepted_packets_total",
    }
    try:
        counted = nfacct.read_packet_counts()
    except HostError as error:
        log.debug("no counters of packets: %s", error)
        return {}
    return {metrics[counter]: number for counter, number in counted.items()}


class _Iptables:
    """`kproxy.proxy.backends.iptables` of one family."""

    def __init__(self, config: Configuration, family: Family) -> None:
        from kproxy.proxy.backends.iptables.kernel import (  # noqa: PLC0415
            IptablesKernel,
            find_tools,
            machine_options,
            refresh_options,
            without_broken_counters,
        )

        tools = find_tools(family)
        self._kernel = IptablesKernel(tools)
        self._options = machine_options(tools, config.iptables.masquerade_bit)
        self._refresh_options = refresh_options
        self._without_broken_counters = partial(without_broken_counters, tools)

    def apply(self, plan: Plan) -> ApplyResult:
        return self._written(plan.family, lambda: self._kernel.apply(plan, self._options))

    def _written(self, family: Family, write: Callable[[], Applied]) -> ApplyResult:
        """Where rules are refused for a counter, they are written without (``met.nfacct-optional``)."""
        try:
            applied = write()
        except HostError:
            known, self._options = self._options, self._without_broken_counters(self._options)
            if self._options == known:
                raise
            log.warning("%s: rules count no packets: the kernel or its tools cannot", family.value)
            applied = write()
        texts = ", ".join(f"{count} of {table.value}" for table, count in applied.written.items() if count)
        return ApplyResult(
            f"{'all written' if applied.rewritten else 'rules written'}: {texts or 'none'}",
            full=applied.rewritten,
            rules={
                table.value: RuleCounts(applied.written.get(table, 0), total)
                for table, total in applied.total.items()
                if table.value in _RULE_METRIC_TABLES
            },
        )

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:
        return self._kernel.find_drift(thorough=thorough)

    def refresh_options(self) -> bool:
        known, self._options = self._options, self._refresh_options(self._options)
        return self._options != known

    def forget(self) -> None:
        self._kernel.forget()


class _Nftables:
    """`kproxy.proxy.backends.nftables` of one family."""

    def __init__(self, config: Configuration, family: Family) -> None:
        from kproxy.proxy.backends.nftables.kernel import NftablesKernel, machine_options  # noqa: PLC0415

        self._kernel = NftablesKernel(family, machine_options(config.nftables.masquerade_bit))

    def apply(self, plan: Plan) -> ApplyResult:
        applied = self._kernel.apply(plan)
        if applied.refused is not None:
            log.warning(
                "%s: a change was refused, so all was written: %s", plan.family.value, applied.refused
            )
        return ApplyResult(
            f"{'all written' if applied.rewritten else 'changed'}: {applied.elements} elements",
            full=applied.rewritten,
            refused=applied.refused is not None,
        )

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:  # noqa: ARG002 - costs next to nothing
        return self._kernel.find_drift()

    def refresh_options(self) -> bool:
        return self._kernel.refresh_options()

    def forget(self) -> None:
        self._kernel.forget()


class _Ipvs:
    """`kproxy.proxy.backends.ipvs` of one family; it reads the masquerade bit of the iptables section (``cfg.mode-sections``)."""

    def __init__(self, config: Configuration, family: Family) -> None:
        from kproxy.proxy.backends.ipvs.kernel import IpvsKernel  # noqa: PLC0415
        from kproxy.proxy.backends.ipvs.kernel import IpvsSettings as IpvsConfiguration  # noqa: PLC0415

        section = config.ipvs
        excluded = (parse_network(text) for text in section.exclude_cidrs)
        given = IpvsConfiguration(
            masquerade_bit=config.iptables.masquerade_bit,
            scheduler=section.scheduler or "rr",
            excluded=tuple(n for n in excluded if n is not None and family_of(n) is family),
            strict_arp=section.strict_arp,
            tcp_timeout=int(section.tcp_timeout.seconds),
            tcp_fin_timeout=int(section.tcp_fin_timeout.seconds),
            udp_timeout=int(section.udp_timeout.seconds),
        )
        self._kernel = IpvsKernel(family, given)

    def apply(self, plan: Plan) -> ApplyResult:
        applied = self._kernel.apply(plan)
        text = f"{applied.messages} messages to IPVS, {applied.members} set members, {applied.addresses} addresses"
        return ApplyResult(
            f"{'all compared' if applied.rewritten else 'changed'}: {text}", full=applied.rewritten
        )

    def find_drift(self, *, thorough: bool) -> tuple[str, ...]:
        return self._kernel.find_drift() if thorough else ()

    def refresh_options(self) -> bool:
        return self._kernel.refresh_options()

    def forget(self) -> None:
        self._kernel.forget()


class _TakeoverDataplane:
    """A data plane that takes over from another mode: what that left goes once its own rules stand.

    In this order no connection finds neither (``restart.mode-change.old-rules-removed``), and at once, since
    until then the old rules serve
    what was deleted while no proxy ran.
    """

    def __init__(self, plane: Dataplane, clear: Callable[[], Iterable[HostError]]) -> None:
        self._plane, self._clear = plane, clear
        self._cleared = False

    def apply(self, plan: Plan) -> ApplyResult:
        return self._schedule_cleanup(self._plane.apply(plan), plan.family)

    def _schedule_cleanup(self, written: ApplyResult, family: Family) -> ApplyResult:
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


def _plane(config: Configuration, family: Family) -> Dataplane:
    match Mode(config.mode):
        case Mode.IPTABLES:
            return _iptables(config, family)
        case Mode.IPVS:
            return _TakeoverDataplane(_Ipvs(config, family), lambda: _clear_beside_ipvs(family))
        case Mode.NFTABLES:
            return _nftables(config, family)


def _iptables(config: Configuration, family: Family) -> Dataplane:
    return _TakeoverDataplane(_Iptables(config, family), lambda: _clear_beside_iptables(family))


def _nftables(config: Configuration, family: Family) -> Dataplane:
    return _TakeoverDataplane(_Nftables(config, family), lambda: _clear_iptables(family))


def _clear_iptables(family: Family) -> Iterable[HostError]:
    """What iptables and ipvs mode left, by either variant of the tools."""
    from kproxy.proxy.daemon.sync import leftovers  # noqa: PLC0415

    return (*leftovers.remove_iptables(family), *leftovers.remove_ipvs(family))


def _clear_beside_iptables(family: Family) -> Iterable[HostError]:
    """What the other modes left, and what iptables mode left in the other variant, by whose rules packets still go."""
    from kproxy.proxy.daemon.sync import leftovers  # noqa: PLC0415

    removals = (leftovers.remove_nftables, leftovers.remove_ipvs, leftovers.remove_other_variant)
    return tuple(problem for remove in removals for problem in remove(family))


def _clear_beside_ipvs(family: Family) -> Iterable[HostError]:
    from kproxy.proxy.daemon.sync import leftovers  # noqa: PLC0415

    return (*leftovers.remove_nftables(family), *leftovers.remove_iptables_beside_ipvs(family))
