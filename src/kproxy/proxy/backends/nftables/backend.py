"""nftables mode, as configuration and daemon use it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kproxy.proxy.backends import CommonBackend, Relayed, failures_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproxy.linux.host import HostError
    from kproxy.model.network import Family
    from kproxy.proxy.backends import AffinityUse, Dataplane, ProxyBackend
    from kproxy.proxy.daemon.config.configuration import Configuration

log = logging.getLogger(__name__)


class _Nftables(CommonBackend):
    metrics = frozenset(
        {
            "sync_full_proxy_rules_duration_seconds",
            "sync_partial_proxy_rules_duration_seconds",
            "sync_proxy_rules_nftables_sync_failures_total",
            "sync_proxy_rules_nftables_cleanup_failures_total",
        }
    )
    primary_node_ports = True
    relayed = Relayed.LOOPBACK
    follows_service_cidrs = True

    def load(self) -> None:
        from kproxy.proxy.backends.nftables import kernel  # noqa: F401, PLC0415

    def open_dataplane(self, config: Configuration, family: Family) -> Dataplane:
        from kproxy.proxy.backends.nftables.kernel import NftablesKernel, machine_options  # noqa: PLC0415

        section = config.nftables
        return NftablesKernel(family, machine_options(section.masquerade_bit, section.affinity_clients))

    def remove_leftovers(self, family: Family, running: str | None) -> tuple[HostError, ...]:
        """Remove the mode's table; no effect on a kernel without nf_tables."""
        from kproxy.linux.host import Reason  # noqa: PLC0415
        from kproxy.proxy.backends.nftables.kernel import remove_table  # noqa: PLC0415

        if running == "nftables":
            return ()
        found = failures_of(lambda: remove_table(family))
        return tuple(error for error in found if error.reason is not Reason.UNSUPPORTED)

    def affinity_use(self) -> Mapping[Family, AffinityUse]:
        from kproxy.linux.host import HostError  # noqa: PLC0415
        from kproxy.model.network import Family  # noqa: PLC0415
        from kproxy.proxy.backends.nftables.kernel import affinity_use  # noqa: PLC0415

        found = {}
        for family in Family:
            try:
                found[family] = affinity_use(family)
            except HostError as error:
                log.debug("%s: no count of clients: %s", family.value, error)
        return {family: use for family, use in found.items() if use is not None}


BACKEND: ProxyBackend = _Nftables()
