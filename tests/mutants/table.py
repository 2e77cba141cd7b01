"""The table of mutants, by topic: every rule family and every policy, disabled one at a time.

A module for each topic of `kproxy.spec.topics`; a mutant is in the topic of the first of its clauses, but for those of userspace mode.
"""

from __future__ import annotations

from tests.mutants import (
    affinity,
    balancing,
    change,
    cluster_ip,
    conntrack,
    detect_local,
    endpoints,
    external_ip,
    external_policy,
    health,
    icmp,
    internal_policy,
    ipvs,
    load_balancer,
    masquerade,
    node_port,
    objects,
    protocol,
    restart,
    source_ranges,
    topology,
    userspace,
    watch,
    writes,
)
from tests.mutants.histories import HISTORIES
from tests.mutants.mutant import mutant

NONE = mutant("none", "Nothing is wrong: the control.")

MUTANTS = (
    *objects.MUTANTS,
    *cluster_ip.MUTANTS,
    *node_port.MUTANTS,
    *external_ip.MUTANTS,
    *load_balancer.MUTANTS,
    *source_ranges.MUTANTS,
    *endpoints.MUTANTS,
    *internal_policy.MUTANTS,
    *external_policy.MUTANTS,
    *topology.MUTANTS,
    *masquerade.MUTANTS,
    *detect_local.MUTANTS,
    *protocol.MUTANTS,
    *balancing.MUTANTS,
    *change.MUTANTS,
    *restart.MUTANTS,
    *writes.MUTANTS,
    *watch.MUTANTS,
    *conntrack.MUTANTS,
    *affinity.MUTANTS,
    *icmp.MUTANTS,
    *health.MUTANTS,
    *ipvs.MUTANTS,
    *userspace.MUTANTS,
)
"""In the order of topics."""

BY_NAME = {wrong.name: wrong for wrong in (NONE, *MUTANTS, *HISTORIES)}
