"""A profile's KubeProxyConfiguration as settings of a node's plan, in a mode."""

from __future__ import annotations

from ipaddress import ip_network

from kproxy.conformance.case import Profile
from kproxy.lab.topology import LAB
from kproxy.model import api
from kproxy.model.network import Family, Network, family_of
from kproxy.proxy.plan import (
    DetectByCIDR,
    DetectByInterface,
    DetectByInterfacePrefix,
    LocalDetector,
    PlanSettings,
)


def settings_of(cluster: api.Cluster, profile: Profile, mode: str, node: str, family: Family) -> PlanSettings:
    """The settings of a node's plan by the profile's KubeProxyConfiguration."""
    by_default: tuple[str, ...] = ("primary",) if mode == "nftables" else ()
    document = cluster.node(LAB.hostnames[node])
    labels = document.metadata.labels if document else {}
    return PlanSettings(
        family=family,
        node=LAB.hostnames[node],
        zone=labels.get(api.ZONE_LABEL, ""),
        node_ips=(LAB.node_address[node][family],),
        node_addresses=LAB.local_addresses(node, family),
        detector=_detector(profile, node, family),
        masquerade_all=profile.masquerade_all,
        node_port_cidrs=_node_port_cidrs(profile.node_port_addresses or by_default, node, family),
        localhost_node_ports=mode in {"iptables", "userspace"} and profile.localhost_node_ports is not False,
        allow_external_ips=profile.allow_external_ips,
        service_cidrs=tuple(
            network
            for item in cluster.service_cidrs.values()
            for network in map(ip_network, item.spec.cidrs or ())
            if family_of(network) is family
        ),
    )


def _detector(profile: Profile, node: str, family: Family) -> LocalDetector:
    match profile.detect_mode:
        case "ClusterCIDR" if family not in profile.detect_families:
            return None
        case "ClusterCIDR":
            return DetectByCIDR(LAB.cluster_cidr[family])
        case "NodeCIDR":
            return DetectByCIDR(LAB.pod_cidrs[node][family])
        case "BridgeInterface":
            return DetectByInterface(profile.detect_interface)
        case "InterfaceNamePrefix":
            return DetectByInterfacePrefix(profile.detect_interface)
        case _:
            return None


def _node_port_cidrs(given: tuple[str, ...], node: str, family: Family) -> tuple[Network, ...] | None:
    if not given:
        return None
    if given == ("primary",):
        return (ip_network(LAB.node_address[node][family]),)
    return tuple(ip_network(text) for text in given)
