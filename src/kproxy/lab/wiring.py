"""Topology as input for ``ip -batch``, sysctl and ``nft``, namespace by namespace.

Pure text from `kproxy.lab.topology`; `kproxy.lab.network` runs it.

Outside clients choose a node by their source address: policy routes in the client and in the router send the Service
ranges to that node, and those of the on-link client all pods' addresses as well: its packets to a pod of the other
node go through this one, and the reply comes back straight. Replies from elsewhere go back the same way, so that a
node tracks both directions of each connection that it forwards. A node's own packets to those ranges are not sent
back to it: the rules match the client's or the routed link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kproxy.lab import topology as t
from kproxy.model.network import Address, Family, Network

CLIENT, REMOTE, ROUTER, ELSEWHERE, SWITCH = "client", "remote", "router", "elsewhere", "switch"
PODS = tuple(pod for node in t.NODES for pod in t.PODS[node])
NAMESPACES = (SWITCH, *t.NODES, CLIENT, ROUTER, REMOTE, ELSEWHERE, *PODS)

BRIDGE, SECOND_BRIDGE = "nodes", "second"
TO_REMOTE, TO_ELSEWHERE = "remote", "elsewhere"
"""The router's interfaces besides `topology.UPLINK`."""

CATCH_ALL_PORT = 9
"""Port of elsewhere's one listener; every port is redirected to it."""

NARROW_MTU = 1400
"""MTU of the link to the routed client, on the router's side: a larger packet makes the router send an ICMP error."""

_FIRST_TABLE = 101
_SERVICE_RANGES = (t.SERVICE_CIDR, t.EXTERNAL_IP_RANGE, t.LOAD_BALANCER_RANGE)
_UPLINKS = ((BRIDGE, t.UPLINK), (SECOND_BRIDGE, t.SECOND_UPLINK))

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


def sysctls(name: str) -> dict[str, str]:
    """Sysctls below ``/proc/sys/net`` for this namespace."""
    forwards = name in {*t.NODES, ROUTER, ELSEWHERE}
    return {key: value for key, value in SYSCTLS.items() if forwards or key not in FORWARDING}


def links(path: Mapping[str, str]) -> str:
    """Batch that makes every link; ``path``: where each namespace can be opened.

    It is run inside the switch, and each link is made where it belongs.
    """
    lines = [f"link add {bridge} type bridge mcast_snooping 0" for bridge, _ in _UPLINKS]
    lines += [_veth(path[SWITCH], port, path[name], uplink) for name, port, _, uplink in _bridge_ports()]
    for node in t.NODES:
        lines += [_veth(path[node], t.pod_interface(pod), path[pod], t.UPLINK) for pod in t.PODS[node]]
    lines.append(_veth(path[ROUTER], TO_REMOTE, path[REMOTE], t.UPLINK))
    lines.append(_veth(path[ROUTER], TO_ELSEWHERE, path[ELSEWHERE], t.UPLINK))
    return "\n".join(lines)


def addressing(name: str, family: Family) -> str:
    """Batch (for ``ip -4`` or ``ip -6``) with a namespace's addresses, routes and policy rules.

    It first brings all links up, so that the two families' batches may run in either order.
    """
    match name:
        case _ if name == SWITCH:
            lines = _switch()
        case _ if name in t.NODES:
            lines = _node(name, family)
        case _ if name in PODS:
            lines = _pod(name, family)
        case _ if name == CLIENT:
            lines = _client(family)
        case _ if name == ROUTER:
            lines = _router(family)
        case _:
            lines = _stub(name, family)
    return "\n".join(["link set lo up", *lines])


def gained(node: str, family: Family) -> str:
    """Batch that adds a running node's additional address; repeating it is harmless.

    IPv4 has it as a secondary address, IPv6 as one not preferred: neither is chosen as a source.
    """
    address, network = t.GAINED_ADDRESS[node][family], t.NODE_NETWORK[family]
    unused = " nodad preferred_lft 0" if family is Family.IPV6 else ""
    return f"address replace {address}/{network.prefixlen} dev {t.UPLINK}{unused}"


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


def _bridge_ports() -> Iterator[tuple[str, str, str, str]]:
    """Ports of the bridges: namespace, the bridge's port, the bridge, the namespace's interface."""
    for bridge, uplink in _UPLINKS:
        for name in (*t.NODES, CLIENT):
            yield name, f"{name}-{uplink}", bridge, uplink
    yield ROUTER, f"{ROUTER}-{t.UPLINK}", BRIDGE, t.UPLINK


def _veth(here: str, interface: str, there: str, peer: str) -> str:
    return f"link add {interface} netns {here} type veth peer name {peer} netns {there}"


def _switch() -> Iterator[str]:
    for _, port, bridge, _ in _bridge_ports():
        yield f"link set {port} master {bridge} up"
    yield from (f"link set {bridge} up" for bridge, _ in _UPLINKS)


def _node(node: str, family: Family) -> Iterator[str]:
    yield from _up(t.UPLINK, t.SECOND_UPLINK, *map(t.pod_interface, t.PODS[node]))
    yield _address(t.NODE_ADDRESS[node][family], t.UPLINK, t.NODE_NETWORK[family])
    yield _address(t.SECOND_ADDRESS[node][family], t.SECOND_UPLINK, t.SECOND_NETWORK[family])
    for pod in t.PODS[node]:
        yield _address(t.POD_GATEWAY[node][family], t.pod_interface(pod))
        yield f"route add {t.POD_ADDRESS[pod][family]} dev {t.pod_interface(pod)}"
        yield _route(t.POD_RANGE[pod][family], t.POD_ADDRESS[pod][family])
    for other in t.NODES:
        if other != node:
            ranges = (t.POD_CIDRS[other], *(t.POD_RANGE[pod] for pod in t.PODS[other]))
            yield from (_route(network[family], t.NODE_ADDRESS[other][family]) for network in ranges)
    yield _route("default", t.ROUTER_ADDRESS[family])


def _pod(pod: str, family: Family) -> Iterator[str]:
    gateway = t.POD_GATEWAY[t.node_of(pod)][family]
    yield from _up(t.UPLINK)
    yield _address(t.POD_ADDRESS[pod][family], t.UPLINK)
    yield f"route add local {t.POD_RANGE[pod][family]} dev lo"
    yield f"route add {gateway} dev {t.UPLINK}"
    yield _route("default", gateway)


def _client(family: Family) -> Iterator[str]:
    yield from _up(t.UPLINK, t.SECOND_UPLINK)
    for address in t.CLIENT_ADDRESS.values():
        yield _address(address[family], t.UPLINK, t.NODE_NETWORK[family])
    yield _address(t.CLIENT_SECOND_ADDRESS[family], t.SECOND_UPLINK, t.SECOND_NETWORK[family])
    yield _route("default", t.ROUTER_ADDRESS[family])
    yield from _routes_to_nodes(family)
    for node in t.NODES:
        sender = t.CLIENT_ADDRESS[node][family]
        ranges = (*_SERVICE_RANGES, t.CLUSTER_CIDR)
        yield from (_rule(node, f"from {sender} to {network[family]}") for network in ranges)


def _router(family: Family) -> Iterator[str]:
    yield from _up(t.UPLINK, TO_REMOTE, TO_ELSEWHERE)
    yield f"link set {TO_REMOTE} mtu {NARROW_MTU}"
    yield _address(t.ROUTER_ADDRESS[family], t.UPLINK, t.NODE_NETWORK[family])
    yield _address(t.REMOTE_GATEWAY[family], TO_REMOTE, t.REMOTE_NETWORK[family])
    yield _address(t.TRANSIT_ROUTER[family], TO_ELSEWHERE, t.TRANSIT_NETWORK[family])
    yield _route("default", t.TRANSIT_ELSEWHERE[family])
    yield from _routes_to_nodes(family)
    for node in t.NODES:
        yield _route(str(t.SECOND_ADDRESS[node][family]), t.NODE_ADDRESS[node][family])
        yield from _router_rules(node, family)


def _router_rules(node: str, family: Family) -> Iterator[str]:
    remote, client = t.REMOTE_ADDRESS[node][family], t.CLIENT_ADDRESS[node][family]
    for services in _SERVICE_RANGES:
        yield _rule(node, f"from {remote} to {services[family]} iif {TO_REMOTE}")
        for sender in (remote, client):
            yield _rule(node, f"from {services[family]} to {sender} iif {TO_ELSEWHERE}")


def _stub(name: str, family: Family) -> Iterator[str]:
    yield from _up(t.UPLINK)
    if name == REMOTE:
        gateway, network = t.REMOTE_GATEWAY[family], t.REMOTE_NETWORK[family]
        own = [address[family] for address in t.REMOTE_ADDRESS.values()]
    else:
        gateway, network = t.TRANSIT_ROUTER[family], t.TRANSIT_NETWORK[family]
        own = [t.TRANSIT_ELSEWHERE[family]]
    yield from (_address(address, t.UPLINK, network) for address in own)
    yield _route("default", gateway)


def _routes_to_nodes(family: Family) -> Iterator[str]:
    for node in t.NODES:
        address = t.NODE_ADDRESS[node][family]
        yield _route(t.POD_CIDRS[node][family], address)
        yield f"route add default via {address} table {_table(node)}"


def _up(*interfaces: str) -> Iterator[str]:
    return (f"link set {interface} up" for interface in interfaces)


def _address(address: Address, interface: str, network: Network | None = None) -> str:
    length = network.prefixlen if network else address.max_prefixlen
    nodad = " nodad" if address.version == 6 else ""
    return f"address add {address}/{length} dev {interface}{nodad}"


def _route(destination: Network | str, gateway: Address) -> str:
    return f"route add {destination} via {gateway}"


def _rule(node: str, selector: str) -> str:
    return f"rule add {selector} lookup {_table(node)}"


def _table(node: str) -> int:
    return _FIRST_TABLE + t.NODES.index(node)
