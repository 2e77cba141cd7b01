"""Which cases a cluster can express, and that others say why not."""

import re

import pytest

from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.testbeds.cluster.lacks import Shape, lacks, narrowed
from kproxy.net import Family

BY_ID = {case.id: case for case in CATALOGUE}
FULL = Shape(neighbour=True)
OUTSIDE = Shape(outside=True)


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
        ("objects.incomplete-endpoint-ports", FULL, "two of one name"),
        ("objects.leading-zeros-are-decimal", FULL, "leading zeros"),
        ("proxy-health.of-a-node-that-is-about-to-leave", FULL, "taints of the cluster's nodes"),
        ("objects.legacy-endpoints-are-not-read", FULL, "mirrors Endpoints"),
        ("objects.dual-stack", Shape(families=(Family.IPV4,), neighbour=True), "Services of IPv4 only"),
        ("topology.node-changes-zone", FULL, "labels of the cluster's nodes"),
        ("topology.zone-hints-decide", Shape(zones_differ=False), "in one zone"),
        ("node-port.clients-outside-are-rewritten", Shape(), "no third node"),
        ("cluster-ip.off-cluster-client-is-rewritten", FULL, "outside of the cluster"),
        ("icmp.large-answers-over-a-narrow-link", OUTSIDE, "no narrow link"),
        ("icmp.pings", OUTSIDE, "pings"),
    ],
)
def test_a_case_that_a_cluster_cannot_express_says_why(name: str, shape: Shape, why: str) -> None:
    reason = lacks(BY_ID[name], shape)
    assert reason is not None
    assert re.search(why, reason), reason


def test_more_of_a_cluster_can_express_more() -> None:
    def able(shape: Shape) -> set[str]:
        return {case.id for case in CATALOGUE if lacks(case, shape) is None}

    assert able(Shape()) < able(FULL) < able(OUTSIDE)
    assert able(Shape(families=(Family.IPV4,))) < able(Shape())
    assert able(Shape(zones_differ=False)) < able(Shape())
    assert able(Shape(sctp=False)) < able(Shape())
    assert len(able(FULL)) > 90


def test_a_case_is_asked_in_the_families_there_are() -> None:
    case = BY_ID["cluster-ip.every-endpoint-of-six"]
    assert narrowed(case, FULL) is case
    assert narrowed(case, Shape(families=(Family.IPV6,))).families == (Family.IPV6,)
