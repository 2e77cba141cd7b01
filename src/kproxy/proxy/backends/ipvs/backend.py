"""ipvs mode, as configuration and daemon use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.proxy.backends import CommonBackend, Relayed, failures_of

if TYPE_CHECKING:
    from kproxy.linux.host import HostError
    from kproxy.model.network import Family
    from kproxy.proxy.backends import Dataplane, ProxyBackend
    from kproxy.proxy.daemon.config.configuration import Configuration
    from kproxy.proxy.plan import Plan

_DEPRECATED = "ipvs mode is deprecated and may be removed in a future release; consider nftables"


class _Ipvs(CommonBackend):
    metrics = frozenset({"sync_proxy_rules_iptables_restore_failures_total"})
    quick_drift_checks = False
    counts_services = True
    relayed = Relayed.LOOPBACK
    deprecation: tuple[str, str] | None = ("IPVSDeprecation", _DEPRECATED)

    def load(self) -> None:
        from kproxy.proxy.backends.ipvs import kernel  # noqa: F401, PLC0415

    def open_dataplane(self, config: Configuration, family: Family) -> Dataplane:
        from kproxy.proxy.backends.ipvs.kernel import IpvsKernel, ipvs_settings  # noqa: PLC0415

        return IpvsKernel(family, ipvs_settings(config, family))

    def prepare_node(self, config: Configuration) -> None:
        from kproxy.proxy.backends.ipvs.kernel import prepare_ipvs  # noqa: PLC0415

        prepare_ipvs(config)

    def make_way(self, family: Family) -> None:
        from kproxy.proxy.backends.ipvs.kernel import leave_device  # noqa: PLC0415

        leave_device(family)

    def drain(self, plan: Plan) -> bool:
        from kproxy.proxy.backends.ipvs.kernel import drain_ipvs  # noqa: PLC0415

        return drain_ipvs(plan)

    def remove_leftovers(self, family: Family, running: str | None) -> tuple[HostError, ...]:
        from kproxy.proxy.backends.ipvs.kernel import end_drain, remove_ipvs_objects  # noqa: PLC0415

        if running == "ipvs":
            return failures_of(lambda: end_drain(family))
        return failures_of(lambda: remove_ipvs_objects(family))


BACKEND: ProxyBackend = _Ipvs()
