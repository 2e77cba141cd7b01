"""The machine's own kernel, as root."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable

from kproxy.lab.kernels.abilities import Ability, KernelName, KernelSurvey, probe_abilities

MODULES = {
    Ability.IPTABLES_NFT: "nft_compat",
    Ability.IPTABLES_LEGACY: "iptable_nat",
    Ability.NFTABLES: "nf_tables",
    Ability.IPSET: "ip_set",
    Ability.CONNTRACK: "nf_conntrack_netlink",
    Ability.IP_VS: "ip_vs",
    Ability.DUMMY: "dummy",
    Ability.SCTP: "sctp",
}
"""Modules that root may load for an ability, where the distribution has them."""

CONTAINER_FIX = (
    "start the container with --cap-add NET_ADMIN --cap-add SYS_ADMIN --security-opt systempaths=unconfined"
)
"""Options of Docker's and Podman's `run`, without which root may neither make a network namespace nor write its sysctls."""


def survey_host(abilities: Iterable[Ability] = Ability) -> KernelSurvey:
    """Survey of this kernel: usable by this process or not, and its abilities, probed."""
    what = f"{platform.system()} {platform.release()}"
    if sys.platform != "linux":
        return KernelSurvey(name=KernelName.HOST, what=what, unusable="this is not Linux")
    if os.geteuid() != 0:
        return KernelSurvey(
            name=KernelName.HOST, what=what, unusable="this user is not root", fix="run it with sudo"
        )
    obstacles = probe_abilities(abilities)
    if reason := obstacles.get(Ability.NAMESPACES):
        return KernelSurvey(name=KernelName.HOST, what=what, unusable=reason, fix=CONTAINER_FIX)
    return KernelSurvey(name=KernelName.HOST, what=what, obstacles=obstacles)


def host_fix(ability: Ability) -> str:
    """Remedy for an ability that this kernel lacks."""
    return f"modprobe {MODULES[ability]}, or --kernel uml" if ability in MODULES else "--kernel uml"
