"""userspace mode, as configuration and daemon use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.proxy.backends import CommonBackend, Relayed

if TYPE_CHECKING:
    from kproxy.linux.host import HostError
    from kproxy.model.network import Family
    from kproxy.proxy.backends import Dataplane, ProxyBackend
    from kproxy.proxy.daemon.config.configuration import Configuration
    from kproxy.proxy.plan import Plan


class _Userspace(CommonBackend):
    metrics = frozenset({"sync_proxy_rules_iptables_restore_failures_total"})
    quick_drift_checks = False
    localhost_node_ports = True
    relayed = Relayed.EVERYTHING

    def load(self) -> None:
        from kproxy.proxy.backends.userspace import kernel  # noqa: F401, PLC0415

    def open_dataplane(self, config: Configuration, family: Family) -> Dataplane:
        from kproxy.proxy.backends.userspace.kernel import UserspaceKernel  # noqa: PLC0415

        return UserspaceKernel(family, keep_sources=self.keeps_sources(config, family))

    def keeps_sources(self, config: Configuration, family: Family) -> bool:
        from kproxy.proxy.backends.userspace.kernel import keeps_sources  # noqa: PLC0415

        return keeps_sources(family, wanted=config.userspace.keep_sources)

    def drain(self, plan: Plan) -> bool:
        """No: the relay knows of connections.  The rules that bring answers to clients' addresses back stay."""
        from kproxy.proxy.backends.userspace.kernel import withdraw_portals  # noqa: PLC0415

        withdraw_portals(plan.family)
        return False

    def remove_leftovers(self, family: Family, running: str | None) -> tuple[HostError, ...]:
        from kproxy.proxy.backends.userspace.kernel import remove_portals  # noqa: PLC0415

        return remove_portals(family, running=running == "userspace")


BACKEND: ProxyBackend = _Userspace()
