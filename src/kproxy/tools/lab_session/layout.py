r"""Topology of a cluster's copy: the two nodes that are real, the place of each endpoint, additional addresses.

Pure.

Two of the cluster's nodes are the lab's nodes ``a`` and ``b``, with their own names and addresses; each runs the
proxy. Endpoints on these two are in namespaces behind them. All others, whatever their node, are behind the router,
as machines whose proxies are not probed:

    a's pods  probe pod a1   b's pods  probe pod b1     a probe pod: one that is no Service's endpoint
        \      /                 \      /
         node a                   node b
              \                  /
               [     switch     ]----- client           on-link: a neighbour of the nodes
                        |
        remote ----- router ------ beyond               other nodes, their pods, and all other endpoints
                        |
                    elsewhere                           packets that no route claims end here, and are answered
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network

from kproxy.conformance.generate.from_dump import PROBE_POD
from kproxy.lab.topology import ELSEWHERE, NODES, REMOTE, Pair, Ranges, Stub, Topology
from kproxy.model import api
from kproxy.model.network import Address, Family, Network, family_of, parse_address, parse_network
from kproxy.tools.explain.dump import Dump, Pod

SPARE: Mapping[Family, Network] = {
    Family.IPV4: ip_network("198.18.0.0/15"),
    Family.IPV6: ip_network("2001:2::/48"),
}
"""Ranges for the lab's additional addresses: reserved for benchmarks (RFC 2544, RFC 5180), except those the cluster has."""

BEYOND = "beyond"

_EVERYWHERE: Ranges = {Family.IPV4: ip_network("0.0.0.0/0"), Family.IPV6: ip_network("::/0")}
_SENTINELS = 8


class CannotCopy(Exception):
    """The cluster cannot be rebuilt like this; the message has the remedy."""


def replica_topology(dump: Dump, names: Sequence[str] = (), *, together: bool) -> Topology:
    """Topology for a cluster; ``names``: the Nodes to run, at most two, else the ones with the most endpoints.

    ``together``: all pods of a node share a namespace, which costs nothing for each; else each has one of its own.
    Raises `CannotCopy`.
    """
    chosen = _chosen(dump, names)
    families = _families(chosen)
    spare = _Spare(dump)
    nodes = dict(zip(NODES, chosen, strict=False))
    addresses = {n: {f: internal_addresses(node)[f] for f in families} for n, node in nodes.items()}
    gateways = {n: _of_pod_range(node, families, spare) for n, node in nodes.items()}
    placed = _placed(dump, {node.metadata.name: n for n, node in nodes.items()}, addresses)
    pods = _pods(dump, nodes, placed, together=together)
    for n, node in nodes.items():
        pods[n][PROBE_POD[n]] = tuple(_of_pod_range(node, families, spare).values())
    clients, remotes = ({n: spare.pair(families) for n in nodes} for _ in range(2))
    range_clients = {n: _range_clients(dump, families, spare) for n in nodes}
    router, elsewhere, uplink = (spare.pair(families) for _ in range(3))
    beyond = (address for address, where in placed.items() if where == BEYOND)
    routed = (a for n in nodes for a in (*remotes[n].values(), *range_clients[n]))
    behind = {REMOTE: routed, ELSEWHERE: elsewhere.values(), BEYOND: (*uplink.values(), *beyond)}
    return Topology(
        families=families,
        hostnames={n: node.metadata.name for n, node in nodes.items()},
        zones={n: node.metadata.labels.get(api.ZONE_LABEL, "") for n, node in nodes.items()},
        pods={n: tuple(own) for n, own in pods.items()},
        node_address=addresses,
        pod_gateway=gateways,
        pod_addresses={pod: own for each in pods.values() for pod, own in each.items()},
        sentinel_pod=PROBE_POD[NODES[0]],
        sentinel_addresses={f: [spare.take(f) for _ in range(_SENTINELS)] for f in families},
        client_address=clients,
        remote_address=remotes,
        range_clients=range_clients,
        router_address=router,
        stubs={name: Stub(gateway=router, addresses=tuple(own)) for name, own in behind.items()},
        ranges_through_nodes=[_EVERYWHERE],
    )


# --------------------------------------------------------------------------- nodes


def _chosen(dump: Dump, names: Sequence[str]) -> tuple[api.Node, ...]:
    if len(names) > len(NODES):
        raise CannotCopy(f"the lab has {len(NODES)} nodes: give --node that often at most")
    known = {node.metadata.name: node for node in dump.cluster.nodes.values() if internal_addresses(node)}
    for name in names:
        if name not in known:
            raise CannotCopy(
                f"--node {name}: no Node of that name has an InternalIP; there are {', '.join(sorted(known))}"
            )
    endpoints = _endpoints(dump)
    ranked = sorted(known.values(), key=lambda node: (-endpoints[node.metadata.name], node.metadata.name))
    if not ranked:
        raise CannotCopy("no Node of the dump has an InternalIP (status.addresses)")
    chosen = [known[name] for name in dict.fromkeys(names)] or ranked[:1]
    others = [node for node in ranked if node not in chosen]
    zones = {node.metadata.labels.get(api.ZONE_LABEL) for node in chosen}
    others.sort(key=lambda node: node.metadata.labels.get(api.ZONE_LABEL) in zones)
    return tuple([*chosen, *others][: len(NODES)])


def _endpoints(dump: Dump) -> Counter[str]:
    """Number of endpoints of each node."""
    return Counter(
        endpoint.node_name or ""
        for piece in dump.cluster.slices.values()
        for endpoint in piece.endpoints or []
    )


def internal_addresses(node: api.Node) -> Pair:
    """First InternalIP of a Node in each family."""
    listed = [parse_address(e.address) for e in node.status.addresses or [] if e.type == "InternalIP"]
    return {family_of(address): address for address in reversed(listed) if address is not None}


def _families(nodes: Sequence[api.Node]) -> tuple[Family, ...]:
    found = tuple(family for family in Family if all(family in internal_addresses(node) for node in nodes))
    if not found:
        names = " and ".join(node.metadata.name for node in nodes)
        raise CannotCopy(f"Nodes {names} have InternalIPs of no family in common: choose others with --node")
    return found


def pod_ranges(node: api.Node) -> Mapping[Family, Network]:
    """Pod ranges of a Node."""
    texts = node.spec.pod_cidrs or [node.spec.pod_cidr]
    found = [network for text in texts if (network := parse_network(text)) is not None]
    return {family_of(network): network for network in found}


def _of_pod_range(node: api.Node, families: Iterable[Family], spare: _Spare) -> Pair:
    """Free address of a Node's pod range in each family."""
    ranges = pod_ranges(node)
    return {family: spare.within(ranges.get(family), family) for family in families}


# --------------------------------------------------------------------------- pods


def _placed(dump: Dump, lab: Mapping[str, str], addresses: Mapping[str, Pair]) -> dict[Address, str]:
    """Place of each address of an endpoint or pod: a lab node, or `BEYOND`; nodes' own addresses are left out.

    ``lab``: the lab's nodes by the names of their Nodes.
    """
    own = {address for pair in addresses.values() for address in pair.values()}
    found: dict[Address, str] = {}
    for address, hostname in _located(dump):
        usable = not (address.is_loopback or address.is_link_local or address.is_multicast)
        if address not in own and usable and not address.is_unspecified:
            found.setdefault(address, lab.get(hostname, BEYOND))
    for other in dump.cluster.nodes.values():
        if other.metadata.name not in lab:
            found.update(dict.fromkeys(internal_addresses(other).values(), BEYOND))
    return found


def _located(dump: Dump) -> Iterator[tuple[Address, str]]:
    for piece in dump.cluster.slices.values():
        for endpoint in piece.endpoints or []:
            for address in parse_addresses(endpoint.addresses or []):
                yield address, endpoint.node_name or _node_by_range(dump, address)
    for pod in dump.pods:
        for address in pod.addresses:
            yield address, pod.node or _node_by_range(dump, address)


def parse_addresses(texts: Iterable[str]) -> Iterator[Address]:
    """Texts that are addresses, parsed."""
    return (address for text in texts if (address := parse_address(text)) is not None)


def _node_by_range(dump: Dump, address: Address) -> str:
    """Node whose pod range contains an address; empty for none."""
    for node in dump.cluster.nodes.values():
        if any(address in network for network in pod_ranges(node).values()):
            return node.metadata.name
    return ""


def _pods(
    dump: Dump, nodes: Iterable[str], placed: Mapping[Address, str], *, together: bool
) -> dict[str, dict[str, tuple[Address, ...]]]:
    """Namespaces behind each node and their addresses: one of all its pods, or one of each.

    Addresses of endpoints without a pod have one each too.
    """
    rest = {address: where for address, where in placed.items() if where != BEYOND}
    if together:
        return {n: {f"{n}-pods": tuple(a for a, where in rest.items() if where == n)} for n in nodes}
    found: dict[str, dict[str, tuple[Address, ...]]] = {n: {} for n in nodes}
    for pod in dump.pods:
        own = tuple(address for address in pod.addresses if rest.pop(address, BEYOND) != BEYOND)
        if own:
            found[placed[own[0]]][pod_label(pod)] = own
    for address, where in rest.items():
        found[where][f"pod/{address}"] = (address,)
    return found


def pod_label(pod: Pod) -> str:
    """Name of a pod on the command line."""
    return f"pod/{pod.namespace}/{pod.name}"


# --------------------------------------------------------------------------- additional addresses


def _range_clients(dump: Dump, families: Iterable[Family], spare: _Spare) -> tuple[Address, ...]:
    """Address of each range that a Service admits."""
    texts = {
        text for s in dump.cluster.services.values() for text in s.spec.load_balancer_source_ranges or []
    }
    ranges = [network for text in sorted(texts) if (network := parse_network(text)) is not None]
    wanted = [network for network in ranges if family_of(network) in set(families) and network.prefixlen]
    found = (spare.only_within(network) for network in wanted[:MOST_RANGES])
    return tuple(address for address in found if address is not None)


MOST_RANGES = 64
_TRIES = 4096


class _Spare:
    """Addresses that nothing in the cluster has, each given once."""

    def __init__(self, dump: Dump) -> None:
        self._used = set(_mentioned(dump))
        self._next: dict[Family, Iterator[Address]] = {
            f: iter(network.hosts()) for f, network in SPARE.items()
        }

    def take(self, family: Family) -> Address:
        found: Address = next(address for address in self._next[family] if address not in self._used)
        self._used.add(found)
        return found

    def pair(self, families: Iterable[Family]) -> Pair:
        return {family: self.take(family) for family in families}

    def within(self, network: Network | None, family: Family) -> Address:
        """Free address of a range, or any other if it has none."""
        found = self.only_within(network) if network is not None else None
        return found or self.take(family)

    def only_within(self, network: Network) -> Address | None:
        for number in range(1, min(network.num_addresses, _TRIES)):
            address: Address = network[number]
            if address not in self._used:
                self._used.add(address)
                return address
        return None


def _mentioned(dump: Dump) -> Iterator[Address]:
    for node in dump.cluster.nodes.values():
        yield from parse_addresses(e.address for e in node.status.addresses or [])
    for address, _ in _located(dump):
        yield address
    for service in dump.cluster.services.values():
        spec, ingress = service.spec, service.status.load_balancer.ingress or []
        texts = [
            spec.cluster_ip,
            *(spec.cluster_ips or []),
            *(spec.external_ips or []),
            *(e.ip for e in ingress),
        ]
        yield from parse_addresses(texts)
