"""The table of mutants: every rule family and every policy, disabled one at a time."""

from __future__ import annotations

from tests.mutants import (
    cluster_reading,
    daemon,
    ipvs,
    ipvs_servers,
    nftables,
    node_policy,
    rule_families,
    trouble,
)
from tests.mutants.mutant import mutant

NONE = mutant("none", "Nothing is wrong: the control.")

MUTANTS = (
    *rule_families.MUTANTS,
    *cluster_reading.MUTANTS,
    *node_policy.MUTANTS,
    *daemon.MUTANTS,
    *nftables.MUTANTS,
    *ipvs.MUTANTS,
    *ipvs_servers.MUTANTS,
    *trouble.MUTANTS,
)

BY_NAME = {wrong.name: wrong for wrong in (NONE, *MUTANTS)}
