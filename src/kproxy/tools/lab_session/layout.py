r"""Layout of a cluster as a lab: the two nodes that are real, the place of each endpoint, additional addresses.

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
from dataclasses import dataclass
from ipaddress import ip_network

from kproxy.lab.topology import NODES
from kproxy.model import api
from kproxy.model.network import Address, Family, Network, family_of, parse_address, parse_network
from kproxy.tools.explain.dump import Dump, Pod

SPARE: Mapping[Family, Network] = {
    Family.IPV4: ip_network("198.18.0.0/15"),
    Family.IPV6: ip_network("2001:2::/48"),
}
"""Ranges for the lab's additional addresses: reserved for benchmarks (RFC 2544, RFC 5180), except those the cluster has."""

PROBE_POD = {"a": "a1", "b": "b1"}
BEYOND = "beyond"

Pair = Mapping[Family, Address]


class CannotCopy(Exception):
    """The cluster cannot be rebuilt like this; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class LabNode:
    """Node of the cluster that the lab runs: its first InternalIP of each family, and its end of the pods' links."""

    name: str
    hostname: str
    address: Pair
    gateway: Pair


@dataclass(frozen=True, slots=True)
class PodNamespace:
    """Network namespace behind a node, and the addresses of the pods in it."""

    name: str
    node: str
    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class OutsideAddresses:
    """Addresses of the clients, by the node that their packets go through; ``router`` and the namespaces behind it."""

    client: Mapping[str, Pair]
    remote: Mapping[str, Pair]
    range_clients: Mapping[str, tuple[Address, ...]]
    """Further addresses of the routed client: one of each range that a Service admits."""
    router: Pair
    elsewhere: Pair
    uplink: Pair
    """Address of beyond itself."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of the lab; ``beyond``: addresses of other nodes and their pods, ``spare``: free addresses."""

    families: tuple[Family, ...]
    nodes: tuple[LabNode, ...]
    pod_namespaces: tuple[PodNamespace, ...]
    probe_pods: Mapping[str, Pair]
    beyond: tuple[Address, ...]
    outside: OutsideAddresses
    spare: Mapping[Family, tuple[Address, ...]]

    def node(self, name: str) -> LabNode:
        """Node ``a`` or ``b`` of the lab."""
        return next(node for node in self.nodes if node.name == name)

    def namespace_of(self, address: Address) -> str:
        """Namespace that has an address of an endpoint; empty if none has."""
        for node in self.nodes:
            if address in node.address.values():
                return node.name
        for namespace in self.pod_namespaces:
            if address in namespace.addresses:
                return namespace.name
        return BEYOND if address in self.beyond else ""

    def own_addresses(self, name: str) -> frozenset[Address]:
        """Addresses that a node may rewrite a source to."""
        node = self.node(name)
        return frozenset((*node.address.values(), *node.gateway.values()))


def layout(dump: Dump, names: Sequence[str] = (), *, together: bool) -> Layout:
    """Layout for a cluster; ``names``: the Nodes to run, at most two, else the ones with the most endpoints.

    ``together``: all pods of a node share a namespace, which costs nothing for each; else each has one of its own.
    Raises `CannotCopy`.
    """
    chosen = _chosen(dump, names)
    families = _families(chosen)
    spare = _Spare(dump)
    nodes = tuple(_lab_node(name, node, families, spare) for name, node in zip(NODES, chosen, strict=False))
    placed = _placed(dump, nodes)
    namespaces_made = tuple(_pod_namespaces(dump, nodes, placed, together=together))
    probe_pods = {PROBE_POD[n.name]: _probe_pod(dump, n, families, spare) for n in nodes}
    beyond = tuple(address for address, where in placed.items() if where == BEYOND)
    outside = OutsideAddresses(
        client={node.name: spare.pair(families) for node in nodes},
        remote={node.name: spare.pair(families) for node in nodes},
        range_clients={node.name: _range_clients(dump, families, spare) for node in nodes},
        router=spare.pair(families),
        elsewhere=spare.pair(families),
        uplink=spare.pair(families),
    )
    rest = {family: tuple(spare.take(family) for _ in range(8)) for family in families}
    return Layout(families, nodes, namespaces_made, probe_pods, beyond, outside, rest)


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


def _lab_node(name: str, node: api.Node, families: Iterable[Family], spare: _Spare) -> LabNode:
    ranges = pod_ranges(node)
    gateway = {family: spare.within(ranges.get(family), family) for family in families}
    return LabNode(name, node.metadata.name, {f: internal_addresses(node)[f] for f in families}, gateway)


def _probe_pod(dump: Dump, node: LabNode, families: Iterable[Family], spare: _Spare) -> Pair:
    known = dump.cluster.node(node.hostname)
    ranges = pod_ranges(known) if known else {}
    return {family: spare.within(ranges.get(family), family) for family in families}


# --------------------------------------------------------------------------- pods


def _placed(dump: Dump, nodes: Sequence[LabNode]) -> dict[Address, str]:
    """Place of each address of an endpoint or pod: a lab node, or `BEYOND`; nodes' own addresses are left out."""
    own = {address for node in nodes for address in node.address.values()}
    lab = {node.hostname: node.name for node in nodes}
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


def _pod_namespaces(
    dump: Dump, nodes: Sequence[LabNode], placed: Mapping[Address, str], *, together: bool
) -> Iterator[PodNamespace]:
    if not together:
        yield from _one_namespace_each(dump, placed)
        return
    for node in nodes:
        here = tuple(address for address, where in placed.items() if where == node.name)
        yield PodNamespace(f"{node.name}-pods", node.name, here)


def _one_namespace_each(dump: Dump, placed: Mapping[Address, str]) -> Iterator[PodNamespace]:
    """Namespace for each pod; addresses of endpoints without a pod have one each too."""
    rest = dict(placed)
    for pod in dump.pods:
        own = tuple(address for address in pod.addresses if rest.pop(address, BEYOND) != BEYOND)
        if own:
            yield PodNamespace(pod_label(pod), placed[own[0]], own)
    for address, where in rest.items():
        if where != BEYOND:
            yield PodNamespace(f"pod/{address}", where, (address,))


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
