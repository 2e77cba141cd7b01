"""Traffic policies, hints, masquerading and detectors: rows written from the catalogue of behaviours."""

# fmt: off
from __future__ import annotations

from kproxy.model import api
from kproxy.spec.node import DetectMode
from tests.support.spec_world import (
    ADDRESS,
    CLUSTER_IP,
    EXTERNAL_IP,
    NO_DETECTOR,
    NODE_PORT,
    VIP,
    client,
    endpoint,
    facts,
    host,
    ingress,
    networks,
    node,
    on,
    packet,
    piece,
    pod,
    row,
    service,
    terminating,
)

PLAIN = service()
INTERNAL = service(internal_traffic_policy="Local")
EXTERNAL = service(
    external_traffic_policy="Local", external_ips=[EXTERNAL_IP], vips=(ingress(VIP),),
)
HERE = ADDRESS["a"]
POD = pod("a2", CLUSTER_IP)
OUTSIDE = client(HERE, NODE_PORT)
OTHER_POD = packet("eth0", "b2", HERE, NODE_PORT)
NO_RANGE_NODE = node("node-a", zone="zone-a", cidrs=(), addresses=(HERE,))

INTERNAL_POLICY = (
    row("internal-policy.local.same-node", "itp.local", POD, "a1", INTERNAL, on("a1", "b1")),
    row("internal-policy.local.same-node", "itp.local.hostnet-client", host(CLUSTER_IP), "~a1",
        INTERNAL, on("a1", "b1")),
    row("internal-policy.local.same-node", "itp.local.offcluster", client(CLUSTER_IP), "~a1",
        INTERNAL, on("a1", "b1")),
    row("internal-policy.local.drop-without-local-endpoint", "itp.local.none", POD, "DROPPED",
        INTERNAL, on("b1")),
    row("internal-policy.local.drop-without-local-endpoint", "itp.local.none", host(CLUSTER_IP), "DROPPED",
        INTERNAL, on("b1")),
    row("internal-policy.local.only-terminating-elsewhere.either", "itp.local.none", POD, "DROPPED REJECTED",
        INTERNAL, piece(terminating("b1"))),
    row("internal-policy.external-addresses-exempt", "itp.local.not-external", OUTSIDE, "~a1 ~b1",
        INTERNAL, on("a1", "b1")),
    row("slices.endpoint.on-node-by-name", "obj.local", POD, "DROPPED", INTERNAL, on("x")),
    row("slices.endpoint.on-node-by-name", "obj.local", POD, "a1", INTERNAL, on("a1", "x")),
)

EXTERNAL_POLICY = (
    row("external-policy.local.local-endpoints-source-preserved", "etp.local.external", OUTSIDE, "a1",
        EXTERNAL, on("a1", "b1")),
    row("external-policy.local.local-endpoints-source-preserved", "eip.etp-local", client(EXTERNAL_IP), "a1",
        EXTERNAL, on("a1", "b1")),
    row("external-policy.local.local-endpoints-source-preserved", "lb.source-preserve-dsr", client(VIP), "a1",
        EXTERNAL, on("a1", "b1")),
    row("external-policy.local.drop-without-local-endpoint", "etp.local.none", OUTSIDE, "DROPPED",
        EXTERNAL, on("b1")),
    row("external-policy.local.drop-without-local-endpoint", "term.local.remote-only", client(VIP), "DROPPED",
        EXTERNAL, piece(terminating("b1"))),
    row("external-policy.local.pods-reach-all-endpoints", "etp.local.pod-shortcut",
        pod("a2", HERE, NODE_PORT), "a1 b1", EXTERNAL, on("a1", "b1")),
    row("external-policy.local.pods-reach-all-endpoints", "etp.local.shortcut-none",
        pod("a2", VIP), "b1", EXTERNAL, on("b1")),
    row("external-policy.local.host-reaches-all-endpoints", "etp.local.node-shortcut",
        host(HERE, NODE_PORT), "~a1 ~b1", EXTERNAL, on("a1", "b1")),
    row("external-policy.local.host-reaches-all-endpoints", "etp.local.shortcut-none",
        host(VIP), "~b1", EXTERNAL, on("b1")),
    row("external-policy.local.host-reaches-all-endpoints", "etp.local.node-shortcut",
        host(VIP), "~a1 ~b1", EXTERNAL, on("a1", "b1"), facts=NO_DETECTOR),
    row("external-policy.local.no-detector.pods-as-outside", "etp.local.pod-shortcut.nodetector",
        pod("a2", VIP), "a1", EXTERNAL, on("a1", "b1"), facts=NO_DETECTOR),
    row("external-policy.local.no-detector.pods-as-outside", "etp.local.pod-shortcut.nodetector",
        pod("a2", VIP), "DROPPED", EXTERNAL, on("b1"), facts=NO_DETECTOR),
    row("external-policy.local.other-nodes-pod.either", "np.cidr-detector-asymmetry",
        OTHER_POD, "a1 b1 DROPPED", EXTERNAL, on("a1", "b1")),
    row("external-policy.local.pods-reach-all-endpoints", "etp.local.pod-shortcut",
        OTHER_POD, "a1 b1", EXTERNAL, on("a1", "b1"), NO_RANGE_NODE),
    row("external-policy.cluster-ip-exempt", "etp.local.cip-unaffected", POD, "a1 b1",
        EXTERNAL, on("a1", "b1")),
)


def zoned(*pairs: tuple[str, str]) -> api.EndpointSlice:
    """Ready endpoints, each with zone hints (separated by commas, none if empty)."""
    return piece(*(endpoint(name, zones=tuple(z.split(",")) if z else ()) for name, z in pairs))


UNLABELLED = node("node-a", zone="", cidrs=("10.0.1.0/24",), addresses=(HERE,))
BOTH_HINTS = piece(
    endpoint("a1", zones=("zone-a",), nodes=("node-a",)), endpoint("b1", zones=("zone-a",), nodes=("node-b",)),
)

TOPOLOGY = (
    row("topology.same-zone", "topo.zone", POD, "a1", PLAIN, zoned(("a1", "zone-a"), ("b1", "zone-b"))),
    row("topology.several-zones-in-hint", "topo.multi-hint", POD, "a1 b1",
        PLAIN, zoned(("a1", "zone-a"), ("b1", "zone-b,zone-a"), ("b2", "zone-b"))),
    row("topology.same-node", "topo.node", POD, "a1", PLAIN, BOTH_HINTS),
    row("topology.no-node-match.zone-decides", "topo.node.fallback-zone", POD, "b1",
        PLAIN, piece(endpoint("b1", zones=("zone-a",), nodes=("node-b",)),
                     endpoint("b2", zones=("zone-b",), nodes=("node-c",)))),
    row("topology.missing-hint.all-endpoints", "topo.missing-hint", POD, "a1 b1",
        PLAIN, zoned(("a1", "zone-a"), ("b1", ""))),
    row("topology.missing-hint.all-endpoints", "topo.missing-hint", POD, "a1 b1",
        PLAIN, piece(endpoint("a1", nodes=("node-a",)), endpoint("b1"))),
    row("topology.unready-hints-ignored", "topo.unready-ignored", POD, "b1 b2", PLAIN,
        piece(endpoint("a1", ready=False, serving=False, zones=("zone-a",)),
              endpoint("b1", zones=("zone-b",)), endpoint("b2", zones=("zone-b",)))),
    row("topology.unready-hints-ignored", "topo.unready-ignored", POD, "a3", PLAIN,
        piece(endpoint("a1", ready=False, serving=False),
              endpoint("a3", zones=("zone-a",)), endpoint("b2", zones=("zone-b",)))),
    row("topology.no-zone-label.all-endpoints", "topo.no-zone-label", POD, "a1 b1",
        PLAIN, zoned(("a1", "zone-a"), ("b1", "zone-b")), UNLABELLED),
    row("topology.no-match.all-endpoints", "topo.no-match", POD, "b1 b2",
        PLAIN, zoned(("b1", "zone-b"), ("b2", "zone-c"))),
    row("topology.no-match.all-endpoints", "topo.no-match", POD, "b1 b2",
        PLAIN, piece(endpoint("b1", nodes=("node-b",)), endpoint("b2", nodes=("node-b",)))),
    row("topology.terminating.hints-ignored", "topo.terminating", POD, "a1 b1",
        PLAIN, piece(terminating("a1", zones=("zone-a",)), terminating("b1", zones=("zone-b",)))),
    row("topology.local-policy.hints-ignored", "topo.local-policy", OUTSIDE, "a1",
        EXTERNAL, zoned(("a1", "zone-b"), ("b1", "zone-a"))),
    row("topology.same-zone", "topo.zone", POD, "b1",
        EXTERNAL, zoned(("a1", "zone-b"), ("b1", "zone-a"))),
    row("topology.external-traffic.hints-followed", "topo.external-cluster", OUTSIDE, "~b1",
        PLAIN, zoned(("a1", "zone-b"), ("b1", "zone-a"))),
)

ALL = facts(masquerade_all=True)
MASQUERADE = (
    row("masquerade.cluster-ip.pod-source-preserved", "masq.cip.pod", POD, "a1 b1", PLAIN, on("a1", "b1")),
    row("masquerade.cluster-ip.host-rewritten", "masq.cip.node", host(CLUSTER_IP), "~b1", PLAIN, on("b1")),
    row("masquerade.cluster-ip.outside-rewritten", "masq.cip.offcluster", client(CLUSTER_IP), "~b1",
        PLAIN, on("b1")),
    row("masquerade.cluster-ip.no-detector.preserved", "det.none", client(CLUSTER_IP), "b1",
        PLAIN, on("b1"), facts=NO_DETECTOR),
    row("masquerade.cluster-ip.no-detector.host.either", "masq.cip.node", host(CLUSTER_IP), "b1 ~b1",
        PLAIN, on("b1"), facts=NO_DETECTOR),
    row("masquerade.all.cluster-ip-rewritten", "masq.all", POD, "~a1 ~b1",
        PLAIN, on("a1", "b1"), facts=ALL),
    row("masquerade.all.external-local-exempt", "masq.all.scope", OUTSIDE, "a1",
        EXTERNAL, on("a1", "b1"), facts=ALL),
    row("masquerade.all.external-local-exempt", "masq.all.scope", pod("a2", VIP), "a1 b1",
        EXTERNAL, on("a1", "b1"), facts=ALL),
    row("masquerade.external-policy-cluster.rewritten", "np.masq", OUTSIDE, "~a1 ~b1",
        PLAIN, on("a1", "b1")),
    row("masquerade.external-policy-cluster.rewritten", "np.masq", OUTSIDE, "~a1 ~b1",
        PLAIN, on("a1", "b1"), facts=NO_DETECTOR),
    row("masquerade.endpoint-of-the-node-itself.preserved", "cip.hostnetwork-backend",
        client(HERE, NODE_PORT), "a ~b ~a1", PLAIN, on("a", "b", "a1")),
    row("masquerade.hairpin.rewritten", "hair.cip", pod("a1", CLUSTER_IP), "~a1 b1", PLAIN, on("a1", "b1")),
    row("masquerade.hairpin.rewritten", "hair.np-vip", pod("a1", HERE, NODE_PORT), "~a1 b1",
        EXTERNAL, on("a1", "b1")),
    row("masquerade.hairpin.rewritten", "hair.np-vip", pod("a1", VIP), "~a1",
        EXTERNAL, on("a1", "b1"), facts=NO_DETECTOR),
    row("masquerade.host-with-pod-source.either", "det.clustercidr",
        host(CLUSTER_IP, source="10.0.1.1"), "a1 ~a1", PLAIN, on("a1")),
)

BRIDGE = facts(detect_mode=DetectMode.BRIDGE_INTERFACE, detect_interface="cni0")
PREFIX = facts(detect_mode=DetectMode.INTERFACE_NAME_PREFIX, detect_interface="veth")
NODE_CIDR = facts(detect_mode=DetectMode.NODE_CIDR)
DETECTORS = (
    row("detect-local.cluster-cidr.first-of-family", "det.clustercidr.first-only", POD, "~b1",
        PLAIN, on("b1"), facts=facts(cluster_cidrs=networks("10.244.0.0/16", "10.0.0.0/16"))),
    row("detect-local.cluster-cidr.first-of-family", "det.clustercidr.first-only", POD, "b1",
        PLAIN, on("b1"), facts=facts(cluster_cidrs=networks("fd00::/16", "10.0.0.0/16", "10.244.0.0/16"))),
    row("masquerade.cluster-ip.no-detector.preserved", "det.none", client(CLUSTER_IP), "b1",
        PLAIN, on("b1"), facts=facts(cluster_cidrs=networks("fd00::/16"))),
    row("detect-local.cluster-cidr.per-family", "det.dualstack", client(CLUSTER_IP), "b1",
        PLAIN, on("b1"), facts=facts(cluster_cidrs=networks("fd00::/16"))),
    row("detect-local.cluster-cidr", "det.clustercidr", packet("eth0", "b2", CLUSTER_IP), "b1", PLAIN, on("b1")),
    row("detect-local.node-cidr", "det.nodecidr", POD, "b1", PLAIN, on("b1"), facts=NODE_CIDR),
    row("detect-local.node-cidr", "det.nodecidr", packet("eth0", "b2", CLUSTER_IP), "~b1",
        PLAIN, on("b1"), facts=NODE_CIDR),
    row("detect-local.node-cidr", "det.nodecidr", OTHER_POD, "a1", EXTERNAL, on("a1", "b1"), facts=NODE_CIDR),
    row("detect-local.bridge-interface", "det.bridge", packet("cni0", "client", CLUSTER_IP), "b1",
        PLAIN, on("b1"), facts=BRIDGE),
    row("detect-local.bridge-interface", "det.bridge", packet("cni01", "a2", CLUSTER_IP), "~b1",
        PLAIN, on("b1"), facts=BRIDGE),
    row("detect-local.interface-name-prefix", "det.prefix", POD, "b1", PLAIN, on("b1"), facts=PREFIX),
    row("detect-local.interface-name-prefix", "det.prefix", packet("eth0", "a2", CLUSTER_IP), "~b1",
        PLAIN, on("b1"), facts=PREFIX),
    row("masquerade.cluster-ip.host-rewritten", "det.host-output", host(CLUSTER_IP), "~b1",
        PLAIN, on("b1"), facts=PREFIX),
)

TABLE = (*INTERNAL_POLICY, *EXTERNAL_POLICY, *TOPOLOGY, *MASQUERADE, *DETECTORS)
