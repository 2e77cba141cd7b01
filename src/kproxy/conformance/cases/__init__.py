"""The catalogue: every case, in reading order.  One module per topic."""

from __future__ import annotations

from kproxy.conformance.case import Case
from kproxy.conformance.cases import (
    affinity,
    balancing,
    borrowed,
    cluster_ip,
    conntrack,
    external_ip,
    external_policy,
    internal_policy,
    load_balancer,
    masquerade,
    no_endpoints,
    node_addresses,
    node_port,
    objects,
    odd_objects,
    protocols,
    readiness,
    restart,
    source_ranges,
    topology,
    wire,
)

CATALOGUE: tuple[Case, ...] = (
    *cluster_ip.CASES,
    *node_port.CASES,
    *node_addresses.CASES,
    *external_ip.CASES,
    *load_balancer.CASES,
    *source_ranges.CASES,
    *protocols.CASES,
    *balancing.CASES,
    *objects.CASES,
    *odd_objects.CASES,
    *internal_policy.CASES,
    *external_policy.CASES,
    *readiness.CASES,
    *topology.CASES,
    *masquerade.CASES,
    *no_endpoints.CASES,
    *conntrack.CASES,
    *wire.CASES,
    *borrowed.CASES,
    *affinity.CASES,
    *restart.CASES,
)
