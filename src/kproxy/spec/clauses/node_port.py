"""Clauses of the topic node-port: connections to node ports, and which addresses of a node have them."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.clause import DOCS, KEP, OBSERVED, UNIT, may, must, should

PACKET = (
    must(
        "node-port.reaches-ready-endpoint",
        "A connection to a node's address and a node port reaches a usable endpoint.",
        DOCS,
        links.SERVICE_NODE_PORT,
        links.E2E_SERVICE,
        of="np.tcp np.udp np.from-pod np.from-node np.hijack",
    ),
    must(
        "node-port.every-node.served",
        "A node without an endpoint of its own serves the node port too, under policy Cluster.",
        DOCS,
        links.SERVICE_NODE_PORT,
        links.E2E_SERVICE,
        of="np.every-node",
    ),
    must(
        "node-port.both-families.served",
        "One node port number is served in each family in which the Service has a cluster IP.",
        KEP,
        links.DUAL_STACK_KEP,
        links.E2E_DUAL_STACK,
        of="ds.nodeport",
    ),
    must(
        "node-port.number-on-service-address.not-served",
        "The node port's number is not served on a cluster IP, external IP or load balancer IP "
        "that is no address of the node.",
        DOCS,
        links.SERVICE_API,
        links.kubernetes_issue(111863),
        of="eip.port",
    ),
    must(
        "node-port.other-node.untouched",
        "A packet to another node's address goes to that node unchanged, node port or not.",
        DOCS,
        links.SERVICE_NODE_PORT,
        of="np.remote-node-hop",
    ),
    must(
        "node-port.addresses.inside-configured.served",
        "With nodePortAddresses set, the node's addresses inside the listed ranges serve node ports.",
        DOCS,
        links.PROXY_CONFIGURATION,
        links.UNIT_NODE_PORT_ADDRESSES,
        of="np.addresses.cidr",
    ),
    must(
        "node-port.addresses.outside-configured.untouched",
        "With nodePortAddresses set, the node's other addresses do not serve node ports.",
        DOCS,
        links.PROXY_CONFIGURATION,
        links.UNIT_NODE_PORT_ADDRESSES,
        of="np.addresses.cidr np.localhost.v4",
    ),
    should(
        "node-port.addresses.family-not-listed.served",
        "If nodePortAddresses lists no range of a family, all the node's addresses of it serve node ports.",
        UNIT,
        links.UNIT_NODE_PORT_ADDRESSES,
        of="np.addresses.family-fallback",
    ),
    must(
        "node-port.addresses.zero-range.served",
        "A /0 range in nodePortAddresses takes in every address of the node in that family.",
        UNIT,
        links.UNIT_NODE_PORT_ADDRESSES,
        of="np.addresses.zero",
    ),
    should(
        "node-port.addresses.gained.served",
        "Where every address of the node serves node ports, one that the node gets while the proxy is running "
        "does so from the proxy's next sync at the latest.",
        OBSERVED,
        links.SOURCE_NODE_PORT_ADDRESSES,
        links.SOURCE_IPTABLES,
        links.SOURCE_NFTABLES,
        of="np.addr-hotplug",
    ),
    may(
        "node-port.addresses.gained-inside-configured.either",
        "An address inside a listed range that the node gets while the proxy is running may serve node ports from "
        "the next sync on, or only after the proxy has started again or has written all of its rules anew.",
        OBSERVED,
        links.SOURCE_IPTABLES,
        links.SOURCE_NFTABLES,
        of="np.addresses.reread",
    ),
    must(
        "node-port.addresses.primary.served",
        "With nodePortAddresses primary, the Node object's primary address of the family serves node ports.",
        DOCS,
        links.PROXY_CONFIGURATION,
        links.NFTABLES_KEP,
        of="np.primary-default",
    ),
    must(
        "node-port.addresses.not-primary.untouched",
        "With nodePortAddresses primary, no other address of the node serves node ports.",
        DOCS,
        links.PROXY_CONFIGURATION,
        links.NFTABLES_KEP,
        of="np.primary-default",
    ),
    may(
        "node-port.addresses.primary-unknown.either",
        "If the Node object has no address of the family, primary may stand for every address or for none.",
        OBSERVED,
        links.NFTABLES_KEP,
        of="np.addresses.primary-unknown",
    ),
    may(
        "node-port.addresses.default-not-primary.either",
        "With nodePortAddresses unset, the node's other addresses may serve node ports or not.",
        DOCS,
        links.PROXY_CONFIGURATION,
        links.NFTABLES_KEP,
        of="np.all-local-addrs np.primary-default lb.vip-local-nodeport",
    ),
    may(
        "node-port.addresses.reject-scope.either",
        "A node port that is rejected, or under externalTrafficPolicy Local dropped, for want of an endpoint "
        "may be so on node addresses that do not serve node ports, too.",
        OBSERVED,
        links.UNIT_IPTABLES,
        of="np.addresses.rej-scope",
    ),
    should(
        "node-port.localhost.enabled.served",
        "With localhostNodePorts true, the node itself reaches node ports on 127.0.0.1.",
        DOCS,
        links.PROXY_CONFIGURATION,
        links.UNIT_IPTABLES,
        of="np.localhost.v4",
    ),
    must(
        "node-port.localhost.disabled.untouched",
        "With localhostNodePorts false, 127.0.0.1 does not serve node ports.",
        DOCS,
        links.PROXY_CONFIGURATION,
        links.UNIT_IPTABLES,
        of="np.localhost.off",
    ),
    may(
        "node-port.localhost.default.either",
        "With localhostNodePorts unset, 127.0.0.1 may serve node ports or not.",
        DOCS,
        links.PROXY_CONFIGURATION,
        links.NFTABLES_KEP,
        of="np.localhost.v4 np.localhost.ipvs-nft",
    ),
    must(
        "node-port.localhost.ipv6.untouched",
        "The address ::1 never serves node ports.",
        DOCS,
        links.PROXY_CONFIGURATION,
        of="np.localhost.v6",
    ),
    must(
        "node-port.localhost.martian-dropped",
        "A packet from another machine or pod to a loopback address never reaches anything on the node.",
        KEP,
        links.IPTABLES_CLEANUP_KEP,
        links.kubernetes_issue(92315),
        of="np.martian-guard np.route-localnet",
    ),
)
"""Clauses that the outcome of one first packet shows."""

HISTORY = (
    should(
        "node-port.number-as-source.untouched",
        "A process may send from a port whose number is a node port; what is answered to it there is its own.",
        OBSERVED,
        links.kubernetes_issue(111682),
        of="np.no-listener",
    ),
    should(
        "node-port.forward-policy-drop.passes",
        "What comes in by a node port or a load balancer IP is forwarded though the node forwards nothing by default "
        "(modes that write rules of iptables).",
        OBSERVED,
        links.kubernetes_issue(59976),
        of="np.forward-policy",
    ),
)
"""Clauses that only several connections, a flow, a change or time can show; the oracle names none of these."""
