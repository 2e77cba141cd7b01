"""Number of rules in a namespace, queried from the kernel: ``iptables-nft-save`` takes 15 s for many."""

from __future__ import annotations

import asyncio

from kproxy.lab.namespaces import Namespace
from kproxy.lab.processes import Xtables, run_in
from kproxy.linux.netlink import netfilter_header
from kproxy.linux.netlink_socket import NETLINK_NETFILTER, Netlink

_NFT_MSG_GETRULE = (10 << 8) | 7
_NFPROTO_UNSPEC = 0
_LEGACY_SAVE = (("xtables-legacy-multi", "iptables-save"), ("xtables-legacy-multi", "ip6tables-save"))


async def count(namespace: Namespace, variant: Xtables, within: float = 30.0) -> int | None:
    """Rules of all tables and both families; None when counting takes longer than ``within`` seconds."""
    try:
        return await asyncio.wait_for(_count(namespace, variant), within)
    except TimeoutError:
        return None


async def _count(namespace: Namespace, variant: Xtables) -> int:
    found = await asyncio.to_thread(_nftables, namespace)
    if variant is Xtables.LEGACY:
        for command in _LEGACY_SAVE:
            saved = await run_in(namespace, command)
            found += sum(line.startswith("-A") for line in saved.splitlines())
    return found


def _nftables(namespace: Namespace) -> int:
    """nftables' own rules and iptables-nft's."""
    with namespace.entered(), Netlink(NETLINK_NETFILTER) as netlink:
        return sum(1 for _ in netlink.dump(_NFT_MSG_GETRULE, netfilter_header(_NFPROTO_UNSPEC)))
