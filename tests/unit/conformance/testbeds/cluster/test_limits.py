"""Which cases a cluster can express, and for others the reason why not."""

import re

import pytest

from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.testbeds.cluster.limits import ClusterShape, case_not_runnable, with_cluster_families
from kproxy.model.network import Family

BY_ID = {case.id: case for case in CATALOGUE}
FULL = ClusterShape(neighbour=True)
OUTSIDE = ClusterShape(outside=True)


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("restart.nobody-notices", FULL, "proxies are not ours to restart"),
        (
            "masquerade.bit-is-configured",
            FULL,
            "configuration of the cluster's proxies .*profile liberal",
        ),
        ("conntrack.liberal-tracking", FULL, "settings of the cluster's kernels"),
        ("cluster-ip.second-service-cidr", FULL, "ServiceCIDR"),
        ("cluster-ip.outside-the-service-cidr", FULL, "its own ServiceCIDRs only"),
        ("objects.external-name-is-left-alone", FULL, "no ExternalName Service"),
        ("objects.incomplete-endpoint-ports", FULL, "no two have one"),
        ("objects.leading-zeros-are-decimal", FULL, "leading zeros"),
        ("proxy-health.of-a-node-that-is-about-to-leave", FULL, "taints of the cluster's nodes"),
        ("objects.legacy-endpoints-are-not-read", FULL, "mirrors Endpoints"),
        (
            "objects.dual-stack",
            ClusterShape(families=(Family.IPV4,), neighbour=True),
            "Services of IPv4 only",
        ),
        ("topology.node-changes-zone", FULL, "labels of the cluster's nodes"),
        ("topology.zone-hints-decide", ClusterShape(zones_differ=False), "in one zone"),
        ("node-port.clients-outside-are-rewritten", ClusterShape(), "no third node"),
        ("cluster-ip.off-cluster-client-is-rewritten", FULL, "outside of the cluster"),
        ("icmp.large-answers-over-a-narrow-link", OUTSIDE, "no narrow link"),
        ("icmp.pings", OUTSIDE, "pings"),
    ],
)
def test_a_case_that_a_cluster_cannot_express_has_a_reason(name: str, shape: ClusterShape, why: str) -> None:
    reason = case_not_runnable(BY_ID[name], shape)
    assert reason is not None
    assert re.search(why, reason), reason


def test_more_of_a_cluster_can_express_more() -> None:
    def able(shape: ClusterShape) -> set[str]:
        return {case.id for case in CATALOGUE if case_not_runnable(case, shape) is None}

    assert able(ClusterShape()) < able(FULL) < able(OUTSIDE)
    assert able(ClusterShape(families=(Family.IPV4,))) < able(ClusterShape())
    assert able(ClusterShape(zones_differ=False)) < able(ClusterShape())
    assert able(ClusterShape(sctp=False)) < able(ClusterShape())
    assert len(able(FULL)) > 90


def test_a_case_is_queried_in_the_families_there_are() -> None:
    case = BY_ID["cluster-ip.every-endpoint-of-six"]
    assert with_cluster_families(case, FULL) is case
    assert with_cluster_families(case, ClusterShape(families=(Family.IPV6,))).families == (Family.IPV6,)
