"""Removal of a mode's chains by every variant of the tools; chains that no tool can remove are reported.

Touches nothing on a clean node (``life.cleanup.stateless``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kproxy.linux.host import HostError, Reason
from kproxy.model.network import Family
from kproxy.proxy.backends.xtables.kernel.removal import remove_chains
from kproxy.proxy.backends.xtables.kernel.tools import (
    Tools,
    Variant,
    command_of,
    find_tools,
    list_chains_by_netlink,
)
from kproxy.proxy.backends.xtables.rules import TableName

Problems = tuple[HostError, ...]
"""Failed removals; each has the reason, and what to do."""

IsOurs = Callable[[TableName, str], bool]
"""True for a chain of the mode, by its table and name."""

log = logging.getLogger(__name__)


def remove_all_chains(family: Family, is_ours: IsOurs) -> Problems:
    """Remove chains, and jumps to them, by both variants of the tools."""
    return tuple(problem for variant in Variant for problem in remove_variant(family, variant, is_ours))


def remove_variant(family: Family, variant: Variant, is_ours: IsOurs) -> Problems:
    """All of one variant, by its tools; without them its chains stay, and that is reported."""
    try:
        tools = _find_tools(family, variant)
    except HostError as error:
        return _report_remaining(family, variant, error, is_ours)
    return remove_chains_of(tools, is_ours)


def _find_tools(family: Family, variant: Variant) -> Tools:
    """The variant's tools by their own name, or by the plain one where it stands for them."""
    try:
        return find_tools(family, variant)
    except HostError:
        plain = find_tools(family)
        if plain.variant is not variant:
            raise
        return plain


def _report_remaining(family: Family, variant: Variant, absence: HostError, is_ours: IsOurs) -> Problems:
    """Failures for chains of a variant whose tools are not installed, as far as the kernel lists them."""
    try:
        found = list_chains_by_netlink(family, variant)
    except HostError:
        found = {}
    found_chains = sorted(
        {f"{t.value} {n}" for t, there in (found or {}).items() for n in there if is_ours(t, n)}
    )
    save = f"{command_of(family, variant)}-save"
    look = f"look with `{save} | grep KUBE-` where {save} is installed (mostly on the node itself)"
    cure = "remove them with these tools and `kproxy run --cleanup`, or restart the node"
    if found_chains:
        detail = f"{len(found_chains)} chains of a proxy stay, the first: {found_chains[0]}: {absence.detail}; {look}; {cure}"
        return (HostError(absence.operation, detail, Reason.OTHER),)
    if found is None:
        log.warning(
            "%s: rules of a proxy may be in the tables of iptables-%s, and they would still catch packets, deleted "
            "Services' too: %s; %s; %s",
            family.value,
            variant.value,
            absence,
            look,
            cure,
        )
    return ()


def remove_chains_of(tools: Tools, is_ours: IsOurs) -> Problems:
    """Remove chains, and jumps to them, by these tools; every failure."""
    problems = []
    for table in TableName:
        try:
            count = remove_chains(tools, table, is_ours)
        except HostError as error:
            problems.append(error)
        else:
            if count:
                log.info("%s: removed %d chains of table %s", tools.command, count, table.value)
    return tuple(problems)
