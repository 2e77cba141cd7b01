from ipaddress import ip_address, ip_network

import pytest

from kproxy.model.api import (
    Cluster,
    Metadata,
    Node,
    NodeAddress,
    NodeSpec,
    NodeStatus,
    ServiceCIDR,
    ServiceCIDRSpec,
)
from kproxy.model.network import Address, Family
from kproxy.proxy.daemon.config.configuration import Configuration
from kproxy.proxy.daemon.config.load import load_configuration
from kproxy.proxy.daemon.config.plan_settings import CurrentSettings, node_addresses, plan_settings
from kproxy.proxy.plan import DetectByCIDR, DetectByInterface, DetectByInterfacePrefix, PlanSettings

HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
MACHINE = tuple(map(ip_address, ("127.0.0.1", "192.0.2.1", "198.51.100.1", "::1", "2001:db8::1")))


def config(text: str = "") -> Configuration:
    return load_configuration(HEAD + text).config


def node(*addresses: tuple[str, str], pods: tuple[str, ...] = (), zone: str = "") -> Node:
    return Node(
        metadata=Metadata(name="a", labels={"topology.kubernetes.io/zone": zone} if zone else {}),
        spec=NodeSpec(pod_cidrs=list(pods)),
        status=NodeStatus(addresses=[NodeAddress(type=kind, address=text) for kind, text in addresses]),
    )


DUAL = node(
    ("Hostname", "a"),
    ("ExternalIP", "203.0.113.1"),
    ("InternalIP", "192.0.2.1"),
    ("InternalIP", "192.0.2.9"),
    ("InternalIP", "2001:db8::1"),
    pods=("10.1.0.0/24", "10.9.0.0/24", "fd01::/64"),
    zone="z1",
)


def settings(text: str = "", known: Node | None = DUAL, family: Family = Family.IPV4) -> PlanSettings:
    own = tuple(address for address in MACHINE if address.version == (4 if family is Family.IPV4 else 6))
    return plan_settings(config(text), family, "a", known, own)


def test_a_family_sees_its_own_addresses_only() -> None:
    four, six = settings(), settings(family=Family.IPV6)
    assert four.node_addresses == MACHINE[:3]
    assert six.node_addresses == MACHINE[3:]
    assert four.node_ips == (ip_address("192.0.2.1"),)
    assert six.node_ips == (ip_address("2001:db8::1"),)


def test_zone_and_name_are_those_of_the_node() -> None:
    assert (settings().node, settings().zone) == ("a", "z1")
    assert settings(known=None).zone == ""


@pytest.mark.parametrize(
    ("text", "four", "six"),
    [
        ("clusterCIDR: 10.0.0.0/8", DetectByCIDR(ip_network("10.0.0.0/8")), None),
        (
            "clusterCIDR: fd00::/8,10.0.0.0/8",
            DetectByCIDR(ip_network("10.0.0.0/8")),
            DetectByCIDR(ip_network("fd00::/8")),
        ),
        ("", None, None),
        (
            "detectLocalMode: NodeCIDR\nclusterCIDR: 10.0.0.0/8",
            DetectByCIDR(ip_network("10.1.0.0/24")),
            DetectByCIDR(ip_network("fd01::/64")),
        ),
        (
            "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cbr0}",
            DetectByInterface("cbr0"),
            DetectByInterface("cbr0"),
        ),
        (
            "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: veth}",
            DetectByInterfacePrefix("veth"),
            DetectByInterfacePrefix("veth"),
        ),
    ],
)
def test_the_detector_follows_mode_and_family(text: str, four: object, six: object) -> None:
    assert settings(text).detector == four
    assert settings(text, family=Family.IPV6).detector == six


def test_internal_addresses_come_before_external_ones_and_the_nodes_order_is_kept() -> None:
    assert node_addresses(config(), DUAL) == (ip_address("192.0.2.1"), ip_address("2001:db8::1"))
    only_external = node(("ExternalIP", "203.0.113.1"))
    assert node_addresses(config(), only_external) == (ip_address("203.0.113.1"),)
    six_first = node(("InternalIP", "2001:db8::1"), ("InternalIP", "192.0.2.1"))
    assert [ip.version for ip in node_addresses(config(), six_first)] == [6, 4]


def test_a_bind_address_that_is_no_wildcard_beats_the_node() -> None:
    bound = config("bindAddress: 198.51.100.1")
    assert node_addresses(bound, DUAL) == (ip_address("198.51.100.1"), ip_address("2001:db8::1"))
    assert node_addresses(bound, None) == (ip_address("198.51.100.1"),)
    assert node_addresses(config("bindAddress: '::'"), None) == ()


def test_primary_stands_for_the_nodes_own_addresses() -> None:
    assert settings("nodePortAddresses: [primary]").node_port_cidrs == (
        ip_network("192.0.2.1/32"),
        ip_network("2001:db8::1/128"),
    )


def test_primary_of_an_unknown_node_restricts_nothing() -> None:
    assert settings("nodePortAddresses: [primary]", known=None).node_port_cidrs is None


@pytest.mark.parametrize("text", ["nodePortAddresses: [primary]", "mode: nftables"])
def test_primary_addresses_that_the_node_loses_stay_until_it_has_others(text: str) -> None:
    current = CurrentSettings(config(text), Family.IPV4, "a", lambda: MACHINE[:3])

    def settings_with(*addresses: tuple[str, str]) -> PlanSettings:
        return current(Cluster(nodes={("", "a"): node(*addresses)}))

    before = settings_with(("InternalIP", "192.0.2.1"), ("InternalIP", "2001:db8::1"))
    assert before.node_port_cidrs
    lost = settings_with()
    assert (lost.node_ips, lost.node_port_cidrs) == (before.node_ips, before.node_port_cidrs)
    one = settings_with(("InternalIP", "2001:db8::9")).node_port_cidrs
    assert one is not None
    assert {ip_network("192.0.2.1/32"), ip_network("2001:db8::9/128")} <= set(one)
    moved = settings_with(("InternalIP", "192.0.2.7"), ("InternalIP", "2001:db8::9"))
    assert moved.node_ips == (ip_address("192.0.2.7"),)


def test_node_ports_are_restricted_only_if_requested_in_iptables_mode_and_to_primary_in_nftables_mode() -> (
    None
):
    assert settings().node_port_cidrs is None
    assert settings("nodePortAddresses: [192.0.2.0/24]").node_port_cidrs == (ip_network("192.0.2.0/24"),)
    assert settings("mode: nftables").node_port_cidrs is not None


def test_switches_come_from_the_section_of_the_mode() -> None:
    assert settings("iptables: {masqueradeAll: true}").masquerade_all
    assert not settings("nftables: {masqueradeAll: true}").masquerade_all
    assert settings("mode: nftables\nnftables: {masqueradeAll: true}").masquerade_all
    assert settings("mode: ipvs\niptables: {masqueradeAll: true}").masquerade_all
    assert settings().localhost_node_ports
    assert not settings("iptables: {localhostNodePorts: false}").localhost_node_ports
    assert settings("mode: nftables").localhost_node_ports
    assert settings("mode: ipvs").localhost_node_ports
    assert not settings("mode: ipvs\niptables: {localhostNodePorts: false}").localhost_node_ports
    assert settings().allow_external_ips
    assert not settings("featureGates: {AllowServiceExternalIPs: false}").allow_external_ips


def test_what_of_a_node_or_a_network_cannot_be_used_is_reported() -> None:
    strange = node(
        ("InternalIP", "x"), ("Hostname", "x"), ("ExternalIP", "203.0.113.1"), pods=("y", "10.1.0.0/24")
    )
    networks = (ServiceCIDR(Metadata(name="s"), ServiceCIDRSpec(["10.96.0.0/12", "z"])),)
    made = plan_settings(config(), Family.IPV4, "a", strange, MACHINE, networks)
    assert [(note.subject, note.text) for note in made.notes] == [
        ("Node a", "InternalIP 'x' is not an IP address"),
        ("Node a", "network of pods 'y' is not a CIDR"),
        ("ServiceCIDR s", "'z' is not a CIDR"),
    ]
    assert settings().notes == ()


def test_current_settings_follow_the_node_its_addresses_and_service_cidrs_and_are_else_the_same_object() -> (
    None
):
    machine: list[tuple[Address, ...]] = [MACHINE[:2]]
    current = CurrentSettings(config(), Family.IPV4, "a", lambda: machine[0])
    cidr = ServiceCIDR(metadata=Metadata(name="more"), spec=ServiceCIDRSpec(cidrs=["10.96.0.0/12"]))
    clusters = [
        Cluster(nodes={("", "a"): DUAL}),
        Cluster(nodes={("", "a"): node(("InternalIP", "192.0.2.9"))}),
        Cluster(nodes={("", "a"): DUAL}, service_cidrs={("", "more"): cidr}),
    ]
    for cluster in clusters:
        for addresses in (MACHINE[:2], MACHINE[:3]):
            machine[0] = addresses
            made = current(cluster)
            known, cidrs = cluster.node("a"), cluster.service_cidrs.values()
            assert made == plan_settings(config(), Family.IPV4, "a", known, addresses, cidrs)
            assert current(cluster) is made
