"""Mutants of the distinction between pods and other senders."""

from __future__ import annotations

from kproxy.lab.topology import LAB
from kproxy.linux.netfilter.patterns import FieldName
from kproxy.model.network import Family
from tests.mutants.mutant import Function, Patch, mutant
from tests.mutants.patches.iptables import MARK, POOLS, Rules, without


def _pods_of_all_nodes(pod_networks: Function) -> Function:
    everywhere = tuple(LAB.cluster_cidr[family] for family in Family)
    return lambda node: everywhere if pod_networks(node) else ()


MUTANTS = (
    mutant(
        "detector.interface-ignored",
        "The interface of a packet does not decide whether it is a pod's.",
        *without(Rules(chain=POOLS, target=MARK), FieldName.IN),
        clauses="detect-local.bridge-interface detect-local.interface-name-prefix",
    ),
    mutant(
        "detector.node-cidr-of-all-nodes",
        "In mode NodeCIDR the pods of other nodes count as this node's.",
        Patch("kproxy.proxy.daemon.config.plan_settings:pod_networks", _pods_of_all_nodes),
        clauses="detect-local.node-cidr",
        needs_kernel=True,
    ),
)
