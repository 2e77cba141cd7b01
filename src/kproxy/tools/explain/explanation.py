"""Explanation of a packet by the oracle, node by node as it travels. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from kproxy.model import api
from kproxy.model.network import Address, Entry, Family, Network, Packet, parse_network
from kproxy.spec.node import PRIMARY, DetectMode, NodeFacts, Primary
from kproxy.spec.oracle import expect
from kproxy.spec.outcome import Expectation, Failure
from kproxy.tools.explain.dump import CannotExplain, Dump, first_of_family, listed_addresses
from kproxy.tools.explain.endpoints import FlowSender, FlowTarget, common_family, find_node

LOOPBACK = frozenset({ip_address("127.0.0.1"), ip_address("::1")})
POD_LINK, UPLINK = "a pod's link", "a link to other machines"
"""Placeholders for the names of interfaces, which a dump does not have and no verdict depends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """Proxy configuration, as far as it matters and was given; ``mode`` selects that mode's defaults.

    Without ``cluster_cidrs`` pods are detected by the Node's pod ranges (``detectLocalMode: NodeCIDR``).
    """

    mode: str = ""
    cluster_cidrs: tuple[Network, ...] = ()
    masquerade_all: bool = False
    node_port_addresses: tuple[Network, ...] | Primary = ()
    extra_addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Hop:
    """Node that may rewrite the packet, and the lawful outcomes there."""

    node: str
    packet: Packet
    expectation: Expectation


@dataclass(frozen=True, slots=True)
class Explanation:
    """Sender and target, the nodes in order (the second if the first must leave it alone), and assumptions."""

    sender: FlowSender
    target: FlowTarget
    hops: tuple[Hop, ...]
    assumptions: tuple[str, ...]


def explain_packet(
    dump: Dump, sender: FlowSender, target: FlowTarget, settings: ProxySettings, node: str = ""
) -> Explanation:
    """Lawful outcomes of the first packet of a connection. Raises `CannotExplain`."""
    family = common_family(sender, target)
    destination = first_of_family(target.addresses, family)
    assert destination is not None
    first = _first_node(dump, sender, destination, node)
    hop = _hop(dump, settings, first, (sender, destination, target))
    hops = [hop]
    beyond = dump.node_with(destination)
    left_alone = hop.expectation.outcomes == {Failure.UNTOUCHED}
    if left_alone and beyond is not None and beyond is not first:
        hops.append(_hop(dump, settings, beyond, (sender, destination, target)))
    return Explanation(sender, target, tuple(hops), tuple(_assumed(settings, first, sender)))


def _first_node(dump: Dump, sender: FlowSender, destination: Address, node: str) -> api.Node:
    """First node whose proxy may rewrite it: the one given, the sender's own, the target's, the only one."""
    owner = dump.node_with(destination)
    return find_node(node or sender.node or (owner.metadata.name if owner else ""), dump)


def _hop(
    dump: Dump, settings: ProxySettings, node: api.Node, flow: tuple[FlowSender, Address, FlowTarget]
) -> Hop:
    sender, destination, target = flow
    here = sender.node == node.metadata.name
    interface = None if here and sender.host else POD_LINK if here else UPLINK
    source = _source(sender, destination)
    packet = Packet(Entry(interface), source, destination, target.protocol, target.port)
    return Hop(node.metadata.name, packet, expect(dump.cluster, dump_node_facts(node, settings), packet))


def _source(sender: FlowSender, destination: Address) -> Address:
    """Source address of the packet.

    For a packet from a node to its own address (or loopback) the destination itself, as the kernel's source selection
    has it.
    """
    if sender.host and (destination in sender.addresses or destination.is_loopback):
        return destination
    source = first_of_family(sender.addresses, Family.IPV4 if destination.version == 4 else Family.IPV6)
    assert source is not None
    return source


def dump_node_facts(node: api.Node, settings: ProxySettings) -> NodeFacts:
    """Facts about a node for the oracle: its object's addresses, the configuration, a mode's defaults."""
    ranges: tuple[Network, ...] | Primary = settings.node_port_addresses
    if not ranges and settings.mode == "nftables":
        ranges = PRIMARY
    return NodeFacts(
        name=node.metadata.name,
        addresses=frozenset((*listed_addresses(node), *settings.extra_addresses)) | LOOPBACK,
        detect_mode=DetectMode.CLUSTER_CIDR if settings.cluster_cidrs else DetectMode.NODE_CIDR,
        cluster_cidrs=settings.cluster_cidrs,
        masquerade_all=settings.masquerade_all,
        node_port_addresses=ranges,
        localhost_node_ports=settings.mode in {"iptables", "userspace"} if settings.mode else None,
    )


def _assumed(settings: ProxySettings, node: api.Node, sender: FlowSender) -> list[str]:
    """Assumptions where neither an object nor an option decides."""
    found = []
    if not settings.cluster_cidrs:
        texts = ", ".join(node.spec.pod_cidrs or [node.spec.pod_cidr])
        detection = f"pods of {node.metadata.name} are detected by its Node's pod range {texts}"
        none = f"Node {node.metadata.name} has no pod range: pods cannot be detected"
        found.append(f"{detection if texts else none} (--cluster-cidr for mode ClusterCIDR)")
    if not settings.extra_addresses:
        found.append("a node has the addresses that its Node lists, and loopback (--node-address for more)")
    if not settings.mode:
        found.append("where modes have other defaults, any mode's is lawful (--mode for one)")
    if not sender.node and not sender.host:
        found.append("the client's packet comes to this node as it was sent, by routing or a load balancer")
    return found


def parse_networks(text: str, option: str) -> tuple[Network, ...]:
    """Ranges separated by commas. Raises `CannotExplain`."""
    found = []
    for part in filter(None, text.split(",")):
        network = parse_network(part)
        if network is None:
            raise CannotExplain(f"{option} {part}: that is no range, like 10.244.0.0/16")
        found.append(network)
    return tuple(found)
