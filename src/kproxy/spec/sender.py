"""Sender of a packet, as far as a node can detect it.

Part of the specification: from the packet, the Node object and the proxy's configuration.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from kproxy.model import api
from kproxy.model.network import Family, Network, Packet, family_of, parse_network
from kproxy.spec.clauses import clause
from kproxy.spec.node import DetectMode, NodeFacts
from kproxy.spec.services import Reasons


class SenderKind(enum.Enum):
    """The kinds of sender that rules distinguish."""

    POD = "a pod of this node, as the detector has it"
    OTHER_NODES_POD = "a pod of another node, which the detector takes for one of this node"
    HOST = "a process of this node"
    OUTSIDE = "any other sender"


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a packet; ``has_detector``: whether pods can be detected; ``reasons``: clauses on the detection.

    ``looks_like_pod`` is also true of the node itself when it sends from an address of a pod range;
    ``in_pod_range``: whether the source is in the Node's podCIDR, which without a detector has no effect.
    """

    kind: SenderKind
    has_detector: bool
    looks_like_pod: bool
    reasons: Reasons = ()
    in_pod_range: bool = False


def sender_of(cluster: api.Cluster, node: NodeFacts, packet: Packet) -> Sender:
    """Who sent a packet that is at this node."""
    pods = _of_family(_pod_ranges(cluster, node), packet.family)
    in_pod_range = pods is not None and packet.source in pods
    return replace(_detected(cluster, node, packet), in_pod_range=in_pod_range)


def _detected(cluster: api.Cluster, node: NodeFacts, packet: Packet) -> Sender:
    match node.detect_mode:
        case DetectMode.BRIDGE_INTERFACE | DetectMode.INTERFACE_NAME_PREFIX:
            return _by_interface(node, packet)
        case DetectMode.NODE_CIDR:
            reasons = (clause("detect-local.node-cidr"),)
            return _by_source(_of_family(_pod_ranges(cluster, node), packet.family), reasons, packet)
        case DetectMode.CLUSTER_CIDR:
            return _by_cluster_cidr(cluster, node, packet)


def _by_interface(node: NodeFacts, packet: Packet) -> Sender:
    name = packet.entry.interface
    if node.detect_mode is DetectMode.BRIDGE_INTERFACE:
        reasons = (clause("detect-local.bridge-interface"),)
        pod = name == node.detect_interface
    else:
        reasons = (clause("detect-local.interface-name-prefix"),)
        pod = name is not None and name.startswith(node.detect_interface)
    detector = bool(node.detect_interface)
    return _sender(packet, detector=detector, pod=detector and pod, reasons=reasons)


def _by_cluster_cidr(cluster: api.Cluster, node: NodeFacts, packet: Packet) -> Sender:
    configured = [r for r in node.cluster_cidrs if family_of(r) is packet.family]
    if node.cluster_cidrs and not configured:
        per_family = (clause("detect-local.cluster-cidr.per-family"),)
        return replace(_by_source(None, (), packet), reasons=per_family)
    reasons: Reasons = (clause("detect-local.cluster-cidr.first-of-family"),) if len(configured) > 1 else ()
    sender = _by_source(_of_family(node.cluster_cidrs, packet.family), reasons, packet)
    here = _of_family(_pod_ranges(cluster, node), packet.family)
    if sender.kind is SenderKind.POD and here is not None and packet.source not in here:
        reasons += (clause("detect-local.cluster-cidr"),)
        return Sender(SenderKind.OTHER_NODES_POD, has_detector=True, looks_like_pod=True, reasons=reasons)
    return sender


def _by_source(pods: Network | None, reasons: Reasons, packet: Packet) -> Sender:
    pod = pods is not None and packet.source in pods
    return _sender(packet, detector=pods is not None, pod=pod, reasons=reasons)


def _sender(packet: Packet, *, detector: bool, pod: bool, reasons: Reasons) -> Sender:
    outside = SenderKind.POD if pod else SenderKind.OUTSIDE
    who = SenderKind.HOST if packet.entry.from_host else outside
    return Sender(who, detector, pod, reasons if detector else ())


def _pod_ranges(cluster: api.Cluster, node: NodeFacts) -> tuple[Network, ...]:
    """The ranges that the Node object gives to the node's pods."""
    known = cluster.node(node.name)
    if known is None:
        return ()
    texts = known.spec.pod_cidrs or [known.spec.pod_cidr]
    return tuple(found for text in texts if (found := parse_network(text)) is not None)


def _of_family(ranges: tuple[Network, ...], family: Family) -> Network | None:
    return next((r for r in ranges if family_of(r) is family), None)
