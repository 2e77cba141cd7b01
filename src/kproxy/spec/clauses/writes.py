"""Clauses of the topic writes: writes that the kernel refuses, and rules that another program removes."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, OBSERVED, UNIT, must, should

HISTORY = (
    should(
        "writes.refused.rules-kept",
        "While the kernel takes nothing that a node's proxy writes, what its rules serve is served as before.",
        OBSERVED,
        links.SOURCE_IPTABLES,
        links.SOURCE_NFTABLES,
        of="life.retry",
    ),
    must(
        "writes.refused.tried-again",
        "What the kernel refused is written when it takes it again, what was deleted meanwhile included, "
        "though no object changes any more.",
        UNIT,
        links.UNIT_RUNNER,
        links.UNIT_IPTABLES,
        of="life.retry life.retry.ipvs life.partial-fallback",
    ),
    should(
        "writes.refused-in-one-family.other-followed",
        "While the kernel refuses what a node's proxy writes for one IP family, changes are in effect in the other as ever.",
        OBSERVED,
        links.SOURCE_META_PROXIER,
        links.DUAL_STACK_KEP,
        of="ds.independent-sync",
    ),
    should(
        "rules.removed-by-another.restored",
        "When another program removes all rules and chains of iptables from a node, all that was served there is served again "
        "soon after the syncPeriod, though no object changes.",
        OBSERVED,
        links.SOURCE_IPTABLES,
        links.SYNC_PERIOD,
        of="life.canary life.max-sync",
    ),
    should(
        "rules.removed-by-another.one-table-restored",
        "When another program has removed the rules and chains of one table of iptables from a node, all that was served there is "
        "served again soon after the syncPeriod, though no object changes.",
        DOCS,
        links.SYNC_PERIOD,
        "https://github.com/kubernetes/kubernetes/issues/129128",
        of="life.max-sync",
    ),
    should(
        "rules.removed-by-another.addresses-restored",
        "When another program has removed the addresses that a proxy binds for Services from a node, all that was served there is "
        "served again soon after the syncPeriod, though no object changes.",
        OBSERVED,
        links.SOURCE_IPVS,
        links.SYNC_PERIOD,
        "https://github.com/kubernetes/kubernetes/issues/135631",
        of="life.max-sync",
    ),
    should(
        "rules.removed-by-another.ruleset-restored",
        "When another program has removed all tables of nftables from a node, all that was served there is served again soon after "
        "the syncPeriod and then the next change of any Service.",
        OBSERVED,
        links.SOURCE_NFTABLES,
        of="life.partial-fallback",
    ),
)
"""Clauses that only several connections, a flow, a change or time can show; the oracle names none of these."""
