"""What a configuration requires that the node cannot give (``cfg.badconfig-warn``)."""

import pytest

from kproxy.model.network import Family, parse_network
from kproxy.proxy.daemon.config.config_warnings import ConfigWarning, NodeNetworking, config_warnings
from kproxy.proxy.daemon.config.configuration import IPVS, Configuration, with_addresses

BOTH = NodeNetworking(Family.IPV4, frozenset(Family))
FOUR = NodeNetworking(Family.IPV4, frozenset({Family.IPV4}))
SIX = NodeNetworking(Family.IPV6, frozenset({Family.IPV6}))


def reported(node: NodeNetworking, pods: tuple[str, ...] = (), **fields: object) -> tuple[ConfigWarning, ...]:
    given: dict[str, object] = {"node_port_addresses": ("primary",), **fields}
    config = with_addresses(Configuration(**given))  # type: ignore[arg-type]
    networks = [network for network in map(parse_network, pods) if network is not None]
    return config_warnings(config, NodeNetworking(node.primary, node.families, networks))


def test_nothing_is_logged_of_a_configuration_that_fits() -> None:
    assert reported(BOTH, cluster_cidr="10.0.0.0/8,fd00::/8") == ()
    assert reported(BOTH, ("10.0.0.0/24",), cluster_cidr="10.0.0.0/8") == ()
    assert reported(FOUR, cluster_cidr="10.0.0.0/8", node_port_addresses=("10.0.0.0/8",)) == ()


@pytest.mark.parametrize(
    ("node", "fields", "text"),
    [
        (BOTH, {"node_port_addresses": ()}, "nodePortAddresses is unset"),
        (BOTH, {"node_port_addresses": ("fd00::/8",)}, "no IPv4 network"),
        (
            BOTH,
            {"node_port_addresses": ("10.0.0.0/8",), "cluster_cidr": "10.0.0.0/8,fd00::/8"},
            "no IPv6 network",
        ),
        (BOTH, {"cluster_cidr": "fd00::/8"}, "IPv4-primary but clusterCIDR has only IPv6"),
        (FOUR, {"detect_local_mode": "NodeCIDR", "cluster_cidr": "fd00::/8"}, "IPv4-only but clusterCIDR"),
        (FOUR, {"pods": ("fd00::/64",)}, "spec.podCIDRs has only IPv6"),
        (
            FOUR,
            {"mode": "ipvs", "ipvs": IPVS(exclude_cidrs=("fd00::/8",))},
            "ipvs.excludeCIDRs has only IPv6",
        ),
        (FOUR, {"healthz_bind_address": "[fd00::1]:1"}, "healthzBindAddress is IPv6"),
        (SIX, {"metrics_bind_address": "127.0.0.1:1"}, "metricsBindAddress is IPv4"),
    ],
)
def test_a_mismatch_is_reported_and_lived_with(
    node: NodeNetworking, fields: dict[str, object], text: str
) -> None:
    lines = reported(node, **fields)  # type: ignore[arg-type]
    assert [line for line in lines if text in line.text]
    assert not any(line.fatal for line in lines)


@pytest.mark.parametrize(
    ("node", "fields"),
    [
        (FOUR, {"cluster_cidr": "fd00::/8"}),
        (SIX, {"cluster_cidr": "10.0.0.0/8"}),
        (FOUR, {"detect_local_mode": "NodeCIDR", "pods": ("fd00::/64",)}),
        (BOTH, {"detect_local_mode": "NodeCIDR", "pods": ("fd00::/64",)}),
    ],
)
def test_a_detector_without_a_network_of_the_primary_family_is_fatal(
    node: NodeNetworking, fields: dict[str, object]
) -> None:
    (first, *others) = reported(node, **fields)  # type: ignore[arg-type]
    assert first.fatal
    assert not any(line.fatal for line in others)


def test_a_wildcard_listens_in_any_family() -> None:
    assert reported(SIX, healthz_bind_address="0.0.0.0:1", metrics_bind_address="[::]:1") == ()
