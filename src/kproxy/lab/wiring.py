"""Topology as input for ``ip -batch``, sysctl and ``nft``, namespace by namespace.

Pure text from a `kproxy.lab.topology.Topology`; `kproxy.lab.network` runs it.

Outside clients choose a node by their source address: policy routes in the client and in the router send the ranges
that lead through nodes to that node, and those of the on-link client all pods' addresses as well: its packets to a pod
of the other node go through this one, and the reply comes back straight. Replies from elsewhere go back the same way,
so that a node tracks both directions of each connection that it forwards. A node's own packets to those ranges are not
sent back to it: the rules match the client's or the routed link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kproxy.lab.topology import (
    CLIENT,
    ELSEWHERE,
    REMOTE,
    ROUTER,
    SECOND_UPLINK,
    SWITCH,
    UPLINK,
    Pair,
    Ranges,
    Stub,
    Topology,
)
from kproxy.model.network import Address, Family, Network, family_of

BRIDGE, SECOND_BRIDGE = "nodes", "second"

CATCH_ALL_PORT = 9
"""Port of elsewhere's one listener; every port is redirected to it."""

_FIRST_TABLE = 101
_CROWD_TABLE = 100

SYSCTLS: Mapping[str, str] = {
    "ipv4/ip_forward": "1",
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/conf/default/rp_filter": "0",
    "ipv4/conf/all/send_redirects": "0",
    "ipv4/conf/default/send_redirects": "0",
    "ipv4/conf/all/accept_redirects": "0",
    "ipv4/conf/default/accept_redirects": "0",
    "ipv4/ip_local_reserved_ports": "50000-59999",
    "ipv4/icmp_ratelimit": "0",
    "ipv4/icmp_ratemask": "0",
    "ipv6/conf/all/forwarding": "1",
    "ipv6/conf/all/accept_dad": "0",
    "ipv6/conf/default/accept_dad": "0",
    "ipv6/conf/all/accept_redirects": "0",
    "ipv6/conf/default/accept_redirects": "0",
    "ipv6/conf/default/accept_ra": "0",
    "ipv6/conf/default/router_solicitations": "0",
    "ipv6/icmp/ratelimit": "0",
    "netfilter/nf_conntrack_udp_timeout": "600",
    "bridge/bridge-nf-call-iptables": "0",
    "bridge/bridge-nf-call-ip6tables": "0",
    "bridge/bridge-nf-call-arptables": "0",
}
"""Sysctls written in every namespace before any link is there.

With the kernel's ICMP rate limits, later rejections would look like silence; the rate mask also lifts the limit per second
that the whole machine shares. Without duplicate address detection, IPv6 addresses can be used at once. A slow run's
idle UDP flow does not expire. No socket gets a source port that a case's health check node port has: the proxy could
not listen there.
"""

FORWARDING = frozenset({"ipv4/ip_forward", "ipv6/conf/all/forwarding"})
"""Those of `SYSCTLS` that only nodes, router and elsewhere get."""


def sysctls(*, forwards: bool) -> dict[str, str]:
    """Sysctls below ``/proc/sys/net`` of a namespace that forwards, or of one that does not."""
    return {key: value for key, value in SYSCTLS.items() if forwards or key not in FORWARDING}


@dataclass(frozen=True, slots=True)
class LabWiring:
    """Texts for one topology."""

    topology: Topology

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of all namespaces."""
        t = self.topology
        return (SWITCH, *t.nodes, CLIENT, ROUTER, *t.stubs, *t.all_pods)

    def sysctls(self, name: str) -> dict[str, str]:
        """Sysctls below ``/proc/sys/net`` for this namespace.

        Where pods share a namespace, packets between them come back to it from the node: their source is its own.
        """
        t = self.topology
        forwards = name in {*t.nodes, ROUTER, ELSEWHERE}
        shared = {"ipv4/conf/all/accept_local": "1"} if not t.node_network else {}
        return {**sysctls(forwards=forwards), **shared}

    def links(self, path: Mapping[str, str]) -> str:
        """Batch that makes every link; ``path``: where each namespace can be opened.

        It is run inside the switch, and each link is made where it belongs.
        """
        t = self.topology
        lines = [f"link add {bridge} type bridge mcast_snooping 0" for bridge, _ in self._uplinks]
        lines += [
            _veth(path[SWITCH], port, path[name], uplink) for name, port, _, uplink in self._bridge_ports()
        ]
        lines += [_veth(path[t.node_of(pod)], t.pod_interface(pod), path[pod], UPLINK) for pod in t.all_pods]
        lines += [_veth(path[ROUTER], name, path[name], UPLINK) for name in t.stubs]
        return "\n".join(lines)

    def addressing(self, name: str, family: Family) -> str:
        """Batch (for ``ip -4`` or ``ip -6``) with a namespace's addresses, routes and policy rules.

        It first brings all links up, so that the two families' batches may run in either order. Of a family that the
        topology lacks it has nothing else.
        """
        lines = ["link set lo up", *(f"link set {interface} up" for interface in self._interfaces(name))]
        if name == SWITCH:
            lines += [f"link set {port} master {bridge}" for _, port, bridge, _ in self._bridge_ports()]
        elif family in self.topology.families:
            lines += self._addressed(name, family)
        return "\n".join(lines)

    def gained(self, node: str, family: Family) -> str:
        """Batch that adds a running node's additional address; repeating it is harmless.

        IPv4 has it as a secondary address, IPv6 as one not preferred: neither is chosen as a source.
        """
        address, network = self.topology.gained_address[node][family], self.topology.node_network[family]
        unused = " nodad preferred_lft 0" if family is Family.IPV6 else ""
        return f"address replace {address}/{network.prefixlen} dev {UPLINK}{unused}"

    # ----------------------------------------------------------------------- links

    @property
    def _uplinks(self) -> tuple[tuple[str, str], ...]:
        second = ((SECOND_BRIDGE, SECOND_UPLINK),) if self.topology.second_network else ()
        return ((BRIDGE, UPLINK), *second)

    def _bridge_ports(self) -> Iterator[tuple[str, str, str, str]]:
        """Ports of the bridges: namespace, the bridge's port, the bridge, the namespace's interface."""
        for bridge, uplink in self._uplinks:
            for name in (*self.topology.nodes, CLIENT):
                yield name, f"{name}-{uplink}", bridge, uplink
        yield ROUTER, f"{ROUTER}-{UPLINK}", BRIDGE, UPLINK

    def _interfaces(self, name: str) -> tuple[str, ...]:
        t = self.topology
        if name == SWITCH:
            ports = (port for _, port, _, _ in self._bridge_ports())
            return (*ports, *(bridge for bridge, _ in self._uplinks))
        if name == ROUTER:
            return (UPLINK, *t.stubs)
        if name == CLIENT or name in t.nodes:
            return (*(uplink for _, uplink in self._uplinks), *map(t.pod_interface, t.pods.get(name, ())))
        return (UPLINK,)

    # ----------------------------------------------------------------------- addresses

    def _addressed(self, name: str, family: Family) -> Iterator[str]:
        t = self.topology
        if name in t.nodes:
            return self._node(name, family)
        if name in t.stubs:
            return self._stub(t.stubs[name], family)
        match name:
            case _ if name == CLIENT:
                return self._client(family)
            case _ if name == ROUTER:
                return self._router(family)
            case _:
                return self._pod(name, family)

    def _node(self, node: str, family: Family) -> Iterator[str]:
        t = self.topology
        yield _address(t.node_address[node][family], UPLINK, t.node_network)
        if t.second_network:
            yield _address(t.second_address[node][family], SECOND_UPLINK, t.second_network)
        yield from self._neighbours(family, node)
        for pod in t.pods[node]:
            yield _address(t.pod_gateway[node][family], t.pod_interface(pod))
            own = _own(t.pod_addresses[pod], family)
            yield from (f"route add {address} dev {t.pod_interface(pod)}" for address in own)
            if pod in t.pod_range:
                yield _route(t.pod_range[pod][family], own[0])
        for other in t.pod_cidrs:
            if other != node:
                ranges = (t.pod_cidrs[other], *(t.pod_range[pod] for pod in t.pods[other]))
                yield from (_route(network[family], t.node_address[other][family]) for network in ranges)
        yield _default(t.router_address[family], UPLINK)

    def _pod(self, pod: str, family: Family) -> Iterator[str]:
        t = self.topology
        gateway, own = t.pod_gateway[t.node_of(pod)][family], _own(t.pod_addresses[pod], family)
        yield from (_address(address, UPLINK) for address in own)
        if pod in t.pod_range:
            yield f"route add local {t.pod_range[pod][family]} dev lo"
        yield f"route add {gateway} dev {UPLINK}"
        yield _default(gateway, UPLINK)
        if len(own) > 1:
            yield from _crowd(gateway)

    def _client(self, family: Family) -> Iterator[str]:
        t = self.topology
        yield from (_address(own[family], UPLINK, t.node_network) for own in t.client_address.values())
        if t.second_network:
            yield _address(t.client_second_address[family], SECOND_UPLINK, t.second_network)
        yield from self._neighbours(family, CLIENT)
        yield _default(t.router_address[family], UPLINK)
        for node, network in t.pod_cidrs.items():
            yield _route(network[family], t.node_address[node][family])
        yield from self._tables(family)
        ranges = (*t.ranges_through_nodes, *filter(None, [t.cluster_cidr]))
        for node, own in t.client_address.items():
            yield from (self._rule(node, f"from {own[family]} to {network[family]}") for network in ranges)

    def _router(self, family: Family) -> Iterator[str]:
        t = self.topology
        yield _address(t.router_address[family], UPLINK, t.node_network)
        yield from self._neighbours(family, ROUTER)
        for name, stub in t.stubs.items():
            if stub.mtu:
                yield f"link set {name} mtu {stub.mtu}"
            yield _address(stub.gateway[family], name, stub.network)
            first, *others = _own(stub.addresses, family)
            if not stub.network:
                yield f"route add {first} dev {name}"
                yield from (f"{_route(address, first)} dev {name}" for address in others)
        yield _default(_own(t.stubs[ELSEWHERE].addresses, family)[0], ELSEWHERE)
        yield from self._tables(family)
        for node in t.nodes:
            yield from self._router_to_pods(node, family)
            yield from self._router_rules(node, family)

    def _router_to_pods(self, node: str, family: Family) -> Iterator[str]:
        """Routes to a node's further addresses and its pods."""
        t = self.topology
        there: list[Address | Network] = [t.second_address[node][family]] if node in t.second_address else []
        if node in t.pod_cidrs:
            there.append(t.pod_cidrs[node][family])
        else:
            there += [t.pod_gateway[node][family]]
            there += [one for pod in t.pods[node] for one in _own(t.pod_addresses[pod], family)]
        yield from (_route(one, t.node_address[node][family]) for one in there)

    def _router_rules(self, node: str, family: Family) -> Iterator[str]:
        t = self.topology
        remotes = [t.remote_address[node][family], *_own(t.range_clients.get(node, ()), family)]
        for network in (ranges[family] for ranges in t.ranges_through_nodes):
            yield from (self._rule(node, f"from {own} to {network} iif {REMOTE}") for own in remotes)
            for own in (*remotes, t.client_address[node][family]):
                yield self._rule(node, f"from {network} to {own} iif {ELSEWHERE}")

    def _stub(self, stub: Stub, family: Family) -> Iterator[str]:
        own = _own(stub.addresses, family)
        yield from (_address(address, UPLINK, stub.network) for address in own)
        if not stub.network:
            yield f"route add {stub.gateway[family]} dev {UPLINK}"
        yield _default(stub.gateway[family], UPLINK)

    def _neighbours(self, family: Family, besides: str) -> Iterator[str]:
        """Routes to the neighbours on the switch, where no network has them all."""
        t = self.topology
        if not t.node_network:
            groups: dict[str, Sequence[Pair]] = {node: [t.node_address[node]] for node in t.nodes}
            groups |= {CLIENT: tuple(t.client_address.values()), ROUTER: [t.router_address]}
            for name, pairs in groups.items():
                if name != besides:
                    yield from (f"route add {pair[family]} dev {UPLINK}" for pair in pairs)

    def _tables(self, family: Family) -> Iterator[str]:
        """Table for each node that sends everything through it, except packets to the nodes themselves."""
        t = self.topology
        for node in t.nodes:
            table = f" table {self._table(node)}"
            for other in t.nodes:
                yield f"route add {t.node_address[other][family]} dev {UPLINK}{table}"
            yield _default(t.node_address[node][family], UPLINK) + table

    def _rule(self, node: str, selector: str) -> str:
        return f"rule add {selector} lookup {self._table(node)}"

    def _table(self, node: str) -> int:
        return _FIRST_TABLE + self.topology.nodes.index(node)


def _own(addresses: Sequence[Address], family: Family) -> list[Address]:
    return [address for address in addresses if family_of(address) is family]


def _crowd(gateway: Address) -> Iterator[str]:
    """Routes that send packets between pods of one namespace out through their node, as if each had its own."""
    table = f" table {_CROWD_TABLE}"
    yield f"route add {gateway} dev {UPLINK}{table}"
    yield _default(gateway, UPLINK) + table
    yield f"rule add pref 1 iif {UPLINK} lookup local"
    yield f"rule add pref 2 iif lo lookup {_CROWD_TABLE}"
    yield "rule del pref 0"


ELSEWHERE_RULES = f"""
table inet elsewhere {{
  chain prerouting {{
    type nat hook prerouting priority dstnat
    meta l4proto {{ tcp, udp, sctp }} redirect to :{CATCH_ALL_PORT}
    icmp type echo-request redirect
    icmpv6 type echo-request redirect
  }}
}}
"""
"""nftables rules that make elsewhere reply on every address and port."""


def elsewhere_rules() -> Iterator[tuple[str, ...]]:
    """Rules of `ELSEWHERE_RULES` as arguments of iptables and ip6tables."""
    for protocol in ("tcp", "udp", "sctp"):
        yield (
            *("-t", "nat", "-A", "PREROUTING", "-p", protocol),
            *("-j", "REDIRECT", "--to-ports", str(CATCH_ALL_PORT)),
        )


def elsewhere_pings() -> Iterator[tuple[str, ...]]:
    """Rules that make elsewhere reply to pings, as arguments of iptables and ip6tables, the tool first."""
    common = ("-j", "REDIRECT")
    yield ("iptables", "-t", "nat", "-A", "PREROUTING", "-p", "icmp", "--icmp-type", "echo-request", *common)
    ipv6 = ("-p", "icmpv6", "--icmpv6-type", "echo-request")
    yield ("ip6tables", "-t", "nat", "-A", "PREROUTING", *ipv6, *common)


def _veth(here: str, interface: str, there: str, peer: str) -> str:
    return f"link add {interface} netns {here} type veth peer name {peer} netns {there}"


def _address(address: Address, interface: str, network: Ranges | None = None) -> str:
    """Line that adds an address, with the length of its network, or alone where there is none."""
    length = network[family_of(address)].prefixlen if network else address.max_prefixlen
    nodad = " nodad" if address.version == 6 else ""
    return f"address add {address}/{length} dev {interface}{nodad}"


def _route(destination: Network | Address, gateway: Address) -> str:
    return f"route add {destination} via {gateway}"


def _default(gateway: Address, interface: str) -> str:
    return f"route add default via {gateway} dev {interface} onlink"
