"""iptables mode, as configuration and daemon use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.proxy.backends import CommonBackend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproxy.linux.host import HostError
    from kproxy.model.network import Family
    from kproxy.proxy.backends import Dataplane, ProxyBackend
    from kproxy.proxy.daemon.config.configuration import Configuration


class _Iptables(CommonBackend):
    metrics = frozenset(
        {
            "sync_full_proxy_rules_duration_seconds",
            "sync_partial_proxy_rules_duration_seconds",
            "sync_proxy_rules_iptables_total",
            "sync_proxy_rules_iptables_last",
            "sync_proxy_rules_iptables_restore_failures_total",
            "sync_proxy_rules_iptables_partial_restore_failures_total",
        }
    )
    localhost_node_ports = True
    follows_service_cidrs = True

    def load(self) -> None:
        from kproxy.proxy.backends.iptables.kernel import dataplane  # noqa: F401, PLC0415

    def open_dataplane(self, config: Configuration, family: Family) -> Dataplane:
        from kproxy.proxy.backends.iptables.kernel.dataplane import IptablesDataplane  # noqa: PLC0415

        return IptablesDataplane(family, config.iptables.masquerade_bit)

    def remove_leftovers(self, family: Family, running: str | None) -> tuple[HostError, ...]:
        from kproxy.proxy.backends.iptables.kernel import leftovers  # noqa: PLC0415

        if running == "iptables":
            return leftovers.remove_other_variant(family)
        if running == "ipvs":
            return leftovers.remove_iptables_beside_ipvs(family)
        return leftovers.remove_iptables(family)

    def packet_counts(self) -> Mapping[str, int]:
        from kproxy.proxy.backends.iptables.kernel import nfacct  # noqa: PLC0415

        return nfacct.packet_metrics()


BACKEND: ProxyBackend = _Iptables()
