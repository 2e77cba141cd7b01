"""Mutants of cluster IPs."""

from __future__ import annotations

import re
from dataclasses import replace

from kproxy.linux.netfilter.patterns import FieldName
from kproxy.linux.netfilter.rules import Jump, Reject
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.ipvs import names as ipvs_names
from kproxy.proxy.backends.ipvs.names import IpSet
from kproxy.proxy.backends.xtables.rules import TableName
from tests.mutants.mutant import Function, Patch, in_ipvs, mutant
from tests.mutants.patches.iptables import POOLS, Rules, left_out, without
from tests.mutants.patches.ipvs import in_parts, left_out_of_chain, without_members
from tests.support.iptables_model import NARROW

SMALLEST = Patch("kproxy.proxy.backends.iptables.desired_state:SHAPE", lambda _: NARROW)
"""Else the few Services of a case are one flat chain."""

TREE = "kproxy.proxy.backends.iptables.dispatch_tree:"


def _of_the_neighbour(matches: Function) -> Function:
    return lambda space, key, level, above: matches(
        space, key ^ 1 << (space.width - space.boundaries[level]), level, above
    )


def _cut_short(suffix: Function) -> Function:
    return lambda text: suffix(re.sub(r"(/[^:]{60})[^:]*", r"\1", text))


MUTANTS = (
    mutant(
        "dispatch.forwarded",
        "Only the node's own packets are taken to Services.",
        *left_out(Rules(chain="PREROUTING", target=Jump(names.SERVICES))),
        clauses="cluster-ip.reaches-ready-endpoint",
    ),
    mutant(
        "dispatch.cluster-ip-port",
        "Any port of a cluster IP leads to its endpoints.",
        *without(Rules(chain=names.SERVICES, target=Jump(POOLS)), FieldName.PROTOCOL),
        clauses="cluster-ip.undefined-port.not-served",
    ),
    mutant(
        "dispatch.leaf-misplaced",
        "A tree's chains are where packets for the group beside theirs arrive.",
        SMALLEST,
        Patch(f"{TREE}KeySpace.matches", _of_the_neighbour),
        clauses="cluster-ip.reaches-ready-endpoint",
    ),
    mutant(
        "names.run-together",
        "Names of chains are made of what is named, put together so that some look alike.",
        Patch(
            "kproxy.proxy.backends.iptables.names:name_hash",
            lambda suffix: lambda text: suffix(text.replace(":", "-")),
        ),
        clauses="cluster-ip.reaches-ready-endpoint",
    ),
    mutant(
        "names.cut-short",
        "Names of chains are made of the first 60 characters of a Service's name.",
        Patch("kproxy.proxy.backends.iptables.names:name_hash", _cut_short),
        clauses="cluster-ip.reaches-ready-endpoint",
    ),
    in_ipvs(
        "ipvs.filter.refusal",
        "Ports that no Service has are not refused: the node's own sockets answer at cluster IPs.",
        left_out_of_chain(TableName.FILTER, ipvs_names.IPVS_FILTER, Reject),
        clauses="cluster-ip.undefined-port.not-served",
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.addresses",
        "Service addresses are not made the node's own.",
        in_parts(lambda part: replace(part, addresses=frozenset())),
        clauses="cluster-ip.reaches-ready-endpoint external-ip.reaches-ready-endpoint",
    ),
    in_ipvs(
        "ipvs.set.ipvs-served",
        "Nothing is put into KUBE-IPVS-SERVED.",
        without_members(IpSet.SERVED),
        clauses="cluster-ip.reaches-ready-endpoint",
    ),
)
