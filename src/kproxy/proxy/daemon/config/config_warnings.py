"""Warnings about settings that this node cannot honour, or that are probably not intended.

Called by `kproxy.proxy.daemon.startup` once the node's addresses are known. Pure (``cfg.badconfig-warn``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kproxy.model.network import Family, Network, family_of, parse_network
from kproxy.proxy.backends import find_backend
from kproxy.proxy.daemon.config.configuration import Configuration, DetectLocal, split_host_port
from kproxy.proxy.daemon.config.validation import PRIMARY


@dataclass(frozen=True, slots=True)
class NodeNetworking:
    """Networking of the node: its primary family, the families it serves, and its pod networks by the Node object."""

    primary: Family
    families: frozenset[Family]
    pod_networks: Sequence[Network] = ()

    @property
    def both(self) -> bool:
        """True if both families are served."""
        return len(self.families) > 1


@dataclass(frozen=True, slots=True)
class ConfigWarning:
    """Line for the log; ``fatal``: the proxy must not start."""

    text: str
    fatal: bool = False


def config_warnings(config: Configuration, node: NodeNetworking) -> tuple[ConfigWarning, ...]:
    """All warnings about running ``config`` on that node."""
    return (*_node_ports(config, node), *_wrong_families(config, node))


def _node_ports(config: Configuration, node: NodeNetworking) -> Iterable[ConfigWarning]:
    given = _networks(config.node_port_addresses)
    primary = node.primary.value
    ours = [network for network in given if family_of(network) is node.primary]
    by_default = not config.node_port_addresses and find_backend(config.mode).primary_node_ports
    if config.node_port_addresses == (PRIMARY,) or by_default:
        return
    if not config.node_port_addresses:
        yield ConfigWarning(
            "nodePortAddresses is unset: node ports are accepted on all local IPs; consider primary"
        )
    elif not ours:
        yield ConfigWarning(
            f"nodePortAddresses has no {primary} network: they are accepted on all local {primary} IPs"
        )
    elif len(ours) == len(given) and _needs_both_families(config, node):
        other = _other(node.primary).value
        yield ConfigWarning(
            f"nodePortAddresses has no {other} network: they are accepted on all local {other} IPs"
        )


def _wrong_families(config: Configuration, node: NodeNetworking) -> Iterable[ConfigWarning]:
    other = _other(node.primary)
    kind = f"{node.primary.value}-{'primary' if node.both else 'only'}"
    cluster = _networks(config.cluster_cidr.split(","))
    if _all_of(other, cluster):
        fatal = config.detect_local_mode == DetectLocal.CLUSTER_CIDR.value and not node.both
        yield ConfigWarning(f"the node is {kind} but clusterCIDR has only {other.value} networks", fatal)
    if _all_of(other, node.pod_networks):
        fatal = config.detect_local_mode == DetectLocal.NODE_CIDR.value
        yield ConfigWarning(f"the node is {kind} but spec.podCIDRs has only {other.value} networks", fatal)
    if node.both:
        return
    if config.mode == "ipvs" and _all_of(other, _networks(config.ipvs.exclude_cidrs)):
        yield ConfigWarning(f"the node is {kind} but ipvs.excludeCIDRs has only {other.value} networks")
    for name, text in (
        ("healthzBindAddress", config.healthz_bind_address),
        ("metricsBindAddress", config.metrics_bind_address),
    ):
        listens = split_host_port(text)
        if listens and family_of(listens[0]) is other and not listens[0].is_unspecified:
            yield ConfigWarning(f"the node is {kind} but {name} is {other.value}")


def _needs_both_families(config: Configuration, node: NodeNetworking) -> bool:
    """True if any setting has networks of both families, so the cluster is dual-stack."""
    groups = (
        _networks(config.cluster_cidr.split(",")),
        _networks(config.ipvs.exclude_cidrs),
        node.pod_networks,
    )
    return any({family_of(network) for network in group} == set(Family) for group in groups)


def _all_of(family: Family, networks: Sequence[Network]) -> bool:
    return bool(networks) and all(family_of(network) is family for network in networks)


def _networks(texts: Iterable[str]) -> list[Network]:
    return [network for network in map(parse_network, texts) if network is not None]


def _other(family: Family) -> Family:
    return Family.IPV6 if family is Family.IPV4 else Family.IPV4
