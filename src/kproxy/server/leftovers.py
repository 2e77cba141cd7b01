"""Removal of what proxies leave on a node, ours or kube-proxy's, whatever mode they ran in.

Used by ``--cleanup`` for everything and by `kproxy.server.dataplane` for what another mode left.  Touches nothing on a
clean node (``life.cleanup.stateless``) and leaves KUBE-FIREWALL, which is the kubelet's too (``life.cleanup``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial

from kproxy import host
from kproxy.backends.iptables import names
from kproxy.backends.iptables.diff import Block, deletions
from kproxy.backends.iptables.kernel import Tools, Variant, accounting, find_tools
from kproxy.backends.iptables.kernel.tools import LOCK_SECONDS
from kproxy.backends.iptables.rules import Table
from kproxy.backends.ipvs import kernel as ipvs
from kproxy.backends.nftables.kernel import remove_table
from kproxy.host import HostError, Reason
from kproxy.net import Family

IPVS_CHAINS = frozenset(
    {
        "KUBE-NODE-PORT",
        "KUBE-LOAD-BALANCER",
        "KUBE-SOURCE-RANGES-FIREWALL",
        "KUBE-IPVS-FILTER",
        "KUBE-IPVS-OUT-FILTER",
        "KUBE-TRAFFIC-POLICY",
        "KUBE-LOCAL-SHORTCUT",
    }
)
"""Chains that only ipvs mode makes, in any table."""

_SHARED_WITH_IPVS = {
    Table.NAT: (names.SERVICES, names.POSTROUTING, names.MARK_MASQUERADE),
    Table.FILTER: (names.PROXY_FIREWALL, names.FORWARD),
}
"""Chains that iptables mode and ipvs mode both make."""

_BUILTIN = frozenset({"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"})
_TARGET = re.compile(r" -[jg] (\S+)$")

log = logging.getLogger(__name__)


def remove_everything() -> tuple[HostError, ...]:
    """Remove what all modes left, of both families; every refusal, none when the node is clean now."""
    problems = []
    for family in Family:
        for remove in (remove_iptables, remove_ipvs, remove_nftables):
            problems += _tried(partial(remove, family))
    return tuple(problems)


def remove_iptables(family: Family) -> None:
    """Remove chains and jumps of iptables and ipvs mode, by both variants of the tools, where they are installed.

    Raises the first `HostError` when all has been tried.
    """
    problems = []
    for tools in _installed(family):
        for table in Table:
            problems += _tried(partial(_remove_table, tools, table))
    accounting.remove()
    if problems:
        raise problems[0]


def remove_iptables_beside_ipvs(family: Family) -> None:
    """Remove what iptables mode left on a node where ipvs mode runs now, by the system's own variant of the tools.

    The chains that both modes have stay: they are ipvs mode's by now.  Raises `HostError`.
    """
    tools = find_tools(family)
    for table in Table:
        _remove_table(
            tools, table, lambda table, name: _is_ours(table, name) and not _is_of_ipvs(table, name)
        )


def remove_ipvs(family: Family) -> None:
    """Remove virtual servers, the device of their addresses and IP sets; the chains that use them go before.

    Raises `HostError`.  Where nothing tells of ipvs mode no kernel module is loaded to look for it, and virtual servers
    that are not a proxy's stay (kube-proxy does otherwise, ``life.mode-switch.ipvs-flush``).
    """
    ipvs.remove_all(family)


def remove_nftables(family: Family) -> None:
    """Remove the table of nftables mode; `HostError` when it is there and stays.

    A kernel that cannot have one needs no removal.
    """
    try:
        remove_table(family)
    except HostError as error:
        if error.reason is not Reason.UNSUPPORTED:
            raise


def _tried(remove: Callable[[], None]) -> list[HostError]:
    try:
        remove()
    except HostError as error:
        return [error]
    return []


def _installed(family: Family) -> Iterator[Tools]:
    """The tools of each variant once: by their own names, or by the plain one where it is all there is."""
    found: set[Variant] = set()
    for variant in (*Variant, None):
        try:
            tools = find_tools(family, variant)
        except HostError as error:
            log.debug("%s", error)
            continue
        if tools.variant not in found:
            found.add(tools.variant)
            yield tools


def _is_ours(table: Table, name: str) -> bool:
    return name in names.OWN_CHAINS[table] or name in IPVS_CHAINS or names.is_derived(name)


def _is_of_ipvs(table: Table, name: str) -> bool:
    return name in IPVS_CHAINS or name in _SHARED_WITH_IPVS.get(table, ())


def _remove_table(tools: Tools, table: Table, is_ours: Callable[[Table, str], bool] = _is_ours) -> None:
    existing = _chains(tools, table)
    ours = {name for name in existing if is_ours(table, name)}
    if not ours:
        return
    jumps = [line for chain in sorted(_BUILTIN & existing) for line in _jumps(tools, table, chain, ours)]
    blocks = [Block(table, jumps)] if jumps else []
    tools.restore([*blocks, *deletions(table, sorted(ours), tools.block_chains)])
    log.info("%s: removed %d chains of table %s", tools.command, len(ours), table.value)


def _chains(tools: Tools, table: Table) -> AbstractSet[str]:
    """Names of the chains there are; none where this kernel does not know the variant at all."""
    try:
        return tools.chains()[table]
    except HostError as error:
        if error.reason in {Reason.MISSING, Reason.UNSUPPORTED}:
            return frozenset()
        raise


def _jumps(tools: Tools, table: Table, chain: str, to: AbstractSet[str]) -> Iterator[str]:
    """The orders that take a builtin chain's jumps to ours away, whatever matches they have."""
    argv = (tools.command, "-w", str(LOCK_SECONDS), "-t", table.value, "-S", chain)
    for line in host.run(argv, environment=tools.environment).splitlines():
        target = _TARGET.search(line)
        if line.startswith("-A ") and target and target[1] in to:
            yield "-D " + line.removeprefix("-A ")
