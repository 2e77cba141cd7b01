"""Clauses on which packets a Service answers: which Services count, cluster IPs, node ports."""

from __future__ import annotations

from kproxy.spec import links
from kproxy.spec.catalogue.row import DOCS, E2E, KEP, OBSERVED, UNIT, may, must, should

OBJECTS = (
    must(
        "objects.headless.untouched",
        "A Service whose clusterIP is None is not proxied, whatever else it lists.",
        DOCS,
        links.SERVICE_HEADLESS,
        of="obj.headless",
    ),
    must(
        "objects.without-cluster-ip.untouched",
        "A Service that has no cluster IP (yet) is not proxied.",
        UNIT,
        links.UNIT_SERVICE_MAP,
        of="obj.no-cip",
    ),
    must(
        "objects.external-name.untouched",
        "A Service of type ExternalName is not proxied, even if it still has a cluster IP.",
        DOCS,
        links.SERVICE_EXTERNAL_NAME,
        links.E2E_SERVICE,
        of="obj.externalname",
    ),
    must(
        "objects.proxy-name-label.untouched",
        "A Service with the label service.kubernetes.io/service-proxy-name is left to another proxy.",
        KEP,
        links.PROXY_NAME_KEP,
        links.LABEL_PROXY_NAME,
        of="obj.service-proxy-name",
    ),
    must(
        "objects.single-family.other-family-untouched",
        "A Service with a cluster IP of one family only is not served at all in the other family.",
        KEP,
        links.DUAL_STACK_KEP,
        links.DUAL_STACK,
        of="ds.single-on-dual",
    ),
    should(
        "objects.dual-stack.node-of-one-family.served",
        "On a node whose kernel has IPv6 switched off, Services of both families are served in IPv4.",
        OBSERVED,
        links.kube_proxy_source("cmd/kube-proxy/app/server_linux"),
        links.DUAL_STACK_KEP,
        of="ds.capability",
    ),
    should(
        "objects.addresses.leading-zeros-decimal",
        "IPv4 octets with leading zeros are read as decimal, never as octal.",
        E2E,
        links.E2E_LEADING_ZEROS,
        of="ds.sloppy-ip eip.invalid",
    ),
    must(
        "traffic.not-for-a-service.untouched",
        "A packet that asks for no Service is left alone and keeps its source.",
        E2E,
        links.E2E_NO_SNAT,
        of="masq.nonservice lb.status-removed",
    ),
    should(
        "traffic.own-source-from-outside.dropped",
        "A packet that comes from outside with an address of the node, or of loopback, as its source is served by "
        "nobody (IPv4).",
        OBSERVED,
        links.kubernetes_issue(92315),
        of="np.martian-guard",
    ),
    may(
        "traffic.two-services-one-address.either",
        "When two Services list the same external address and port, either may answer.",
        OBSERVED,
        links.kubernetes_issue(69599),
        of="eip.basic",
    ),
)

CLUSTER_IP = (
    must(
        "cluster-ip.reaches-ready-endpoint",
        "A connection to a cluster IP and service port reaches a usable endpoint on its target port, "
        "and answers come from the cluster IP.",
        DOCS,
        links.VIRTUAL_IPS,
        links.E2E_SERVICE,
        of="cip.tcp.dnat cip.targetport cip.from-node cip.from-backend cip.shared-backend cip.multiport "
        "itp.cluster.default",
    ),
    should(
        "cluster-ip.from-outside.served",
        "A node that gets a packet from outside the cluster for a cluster IP serves it.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="cip.off-cluster itp.local.offcluster",
    ),
    must(
        "cluster-ip.any-range.served",
        "A cluster IP is served whichever range it is from.",
        KEP,
        links.SERVICE_CIDRS_KEP,
        links.E2E_SERVICE_CIDRS,
        of="cip.multi-cidr",
    ),
    must(
        "cluster-ip.undefined-port.not-served",
        "A port that the Service does not define on its cluster IP reaches no endpoint: "
        "the packet is rejected or left to routing.",
        KEP,
        links.NFTABLES_KEP,
        links.kubernetes_issue(72236),
        of="undef.cip-port undef.cip-of-portless",
    ),
    must(
        "cluster-ip.undefined-protocol.not-served",
        "A port number that the Service defines for another protocol only reaches no endpoint.",
        UNIT,
        links.UNIT_IPTABLES,
        links.UNIT_NFTABLES,
        of="undef.cip-proto",
    ),
    may(
        "cluster-ip.unallocated.not-served",
        "A packet to an address of a ServiceCIDR that no Service has is dropped or left to routing.",
        KEP,
        links.NFTABLES_KEP,
        of="undef.unallocated undef.unallocated.race",
    ),
)

NODE_PORT = (
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

TABLE = (*OBJECTS, *CLUSTER_IP, *NODE_PORT)
