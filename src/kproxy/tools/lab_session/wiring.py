"""Layout as input for ``ip -batch``, namespace by namespace. Pure; `kproxy.lab.network` runs it.

Every address is alone (/32, /128) and every route explicit, since the cluster's subnets are unknown. A client's
packets from its first address go through node a, whatever their destination, and so on; replies of elsewhere go back
the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kproxy.lab import wiring
from kproxy.lab.network import Wiring
from kproxy.lab.topology import UPLINK
from kproxy.lab.wiring import BRIDGE, CLIENT, ELSEWHERE, REMOTE, ROUTER, SWITCH
from kproxy.model.network import Address, Family, family_of
from kproxy.tools.lab_session.layout import BEYOND, PROBE_POD, LabNode, Layout, PodNamespace

_FIRST_TABLE = 101
_CROWD_TABLE = 100
_BEHIND = (REMOTE, ELSEWHERE, BEYOND)
"""Namespaces on links of the router's own; its interfaces have their names."""


def wiring_of(layout: Layout) -> Wiring:
    """Network of a layout, as `kproxy.lab.network.build_network` takes it."""
    wires = ReplicaWiring(layout)
    return Wiring(wires.namespaces, wires.sysctls, wires.links, wires.addressing)


@dataclass(frozen=True, slots=True)
class ReplicaWiring:
    """Texts for one layout."""

    layout: Layout

    @property
    def pod_namespaces(self) -> tuple[PodNamespace, ...]:
        """All pod namespaces, those of the probe pods included."""
        visitors = (
            PodNamespace(PROBE_POD[n.name], n.name, tuple(self.layout.probe_pods[PROBE_POD[n.name]].values()))
            for n in self.layout.nodes
        )
        return (*self.layout.pod_namespaces, *visitors)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of all namespaces."""
        nodes = (node.name for node in self.layout.nodes)
        return (
            SWITCH,
            *nodes,
            CLIENT,
            ROUTER,
            *_BEHIND,
            *(pod_namespace.name for pod_namespace in self.pod_namespaces),
        )

    def sysctls(self, name: str) -> dict[str, str]:
        """Sysctls of the topology, and accept_local: a namespace that many pods share accepts packets between them."""
        return {**wiring.sysctls(name), "ipv4/conf/all/accept_local": "1"}

    def links(self, path: Mapping[str, str]) -> str:
        """Batch that makes every link, run inside the switch."""
        lines = [f"link add {BRIDGE} type bridge mcast_snooping 0"]
        lines += [_veth(path[SWITCH], f"port-{name}", path[name], UPLINK) for name in self._on_bridge()]
        for pod_namespace in self.pod_namespaces:
            lines.append(
                _veth(
                    path[pod_namespace.node], self._interface(pod_namespace), path[pod_namespace.name], UPLINK
                )
            )
        lines += [_veth(path[ROUTER], name, path[name], UPLINK) for name in _BEHIND]
        return "\n".join(lines)

    def addressing(self, name: str, family: Family) -> str:
        """Batch with a namespace's addresses, routes and rules, without families that the cluster lacks."""
        lines = ["link set lo up", *(f"link set {interface} up" for interface in self._interfaces(name))]
        if family in self.layout.families:
            lines += self._addressed(name, family)
        return "\n".join(lines)

    # ----------------------------------------------------------------------- addresses

    def _on_bridge(self) -> tuple[str, ...]:
        return (*(node.name for node in self.layout.nodes), CLIENT, ROUTER)

    def _interface(self, pod_namespace: PodNamespace) -> str:
        return f"veth-{self.pod_namespaces.index(pod_namespace)}"

    def _interfaces(self, name: str) -> Iterator[str]:
        if name == SWITCH:
            yield from (BRIDGE, *(f"port-{port}" for port in self._on_bridge()))
            return
        yield UPLINK
        yield from (
            self._interface(pod_namespace)
            for pod_namespace in self.pod_namespaces
            if pod_namespace.node == name
        )
        if name == ROUTER:
            yield from _BEHIND

    def _addressed(self, name: str, family: Family) -> Iterator[str]:
        out = self.layout.outside
        match name:
            case _ if name == SWITCH:
                return (f"link set port-{port} master {BRIDGE}" for port in self._on_bridge())
            case _ if name == CLIENT:
                return self._client(family)
            case _ if name == ROUTER:
                return self._router(family)
            case _ if name == REMOTE:
                clients = [g for group in out.range_clients.values() for g in group if family_of(g) is family]
                return self._stub([pair[family] for pair in out.remote.values()] + clients, family)
            case _ if name == ELSEWHERE:
                return self._stub([out.elsewhere[family]], family)
            case _ if name == BEYOND:
                own = [address for address in self.layout.beyond if family_of(address) is family]
                return self._stub([out.uplink[family], *own], family)
            case _ if name in {node.name for node in self.layout.nodes}:
                return self._node(self.layout.node(name), family)
            case _:
                return self._pod_namespace(
                    next(
                        pod_namespace for pod_namespace in self.pod_namespaces if pod_namespace.name == name
                    ),
                    family,
                )

    def _neighbours(self, family: Family, besides: str = "") -> Iterator[str]:
        """Routes to the neighbours on the switch."""
        out = self.layout.outside
        nodes = [node.address[family] for node in self.layout.nodes if node.name != besides]
        clients = [pair[family] for pair in out.client.values()] if besides != CLIENT else []
        routers = [out.router[family]] if besides != ROUTER else []
        yield from (f"route add {address} dev {UPLINK}" for address in (*nodes, *clients, *routers))

    def _node(self, node: LabNode, family: Family) -> Iterator[str]:
        yield _address(node.address[family], UPLINK)
        yield from self._neighbours(family, node.name)
        for pod_namespace in (
            pod_namespace for pod_namespace in self.pod_namespaces if pod_namespace.node == node.name
        ):
            yield _address(node.gateway[family], self._interface(pod_namespace))
            for address in pod_namespace.addresses:
                if family_of(address) is family:
                    yield f"route add {address} dev {self._interface(pod_namespace)}"
        yield _default(self.layout.outside.router[family], UPLINK)

    def _pod_namespace(self, pod_namespace: PodNamespace, family: Family) -> Iterator[str]:
        gateway = self.layout.node(pod_namespace.node).gateway[family]
        own = [address for address in pod_namespace.addresses if family_of(address) is family]
        yield from (_address(address, UPLINK) for address in own)
        yield f"route add {gateway} dev {UPLINK}"
        yield _default(gateway, UPLINK)
        if len(own) > 1:
            yield from _crowd(gateway)

    def _client(self, family: Family) -> Iterator[str]:
        out = self.layout.outside
        yield from (_address(pair[family], UPLINK) for pair in out.client.values())
        yield from self._neighbours(family, CLIENT)
        yield _default(out.router[family], UPLINK)
        yield from self._tables(family)
        for node, pair in out.client.items():
            yield f"rule add from {pair[family]} lookup {self._table(node)}"

    def _router(self, family: Family) -> Iterator[str]:
        out = self.layout.outside
        yield from (_address(out.router[family], interface) for interface in (UPLINK, *_BEHIND))
        yield from self._neighbours(family, ROUTER)
        yield f"route add {out.elsewhere[family]} dev {ELSEWHERE}"
        yield _default(out.elsewhere[family], ELSEWHERE)
        yield f"route add {out.uplink[family]} dev {BEYOND}"
        for address in (a for a in self.layout.beyond if family_of(a) is family):
            yield f"route add {address} via {out.uplink[family]} dev {BEYOND}"
        for pod_namespace in self.pod_namespaces:
            via = self.layout.node(pod_namespace.node).address[family]
            own = (address for address in pod_namespace.addresses if family_of(address) is family)
            yield from (f"route add {address} via {via} dev {UPLINK}" for address in own)
        for node in self.layout.nodes:
            yield f"route add {node.gateway[family]} via {node.address[family]} dev {UPLINK}"
        yield from self._tables(family)
        for node in self.layout.nodes:
            yield from self._router_rules(node.name, family)

    def _router_rules(self, node: str, family: Family) -> Iterator[str]:
        out, table = self.layout.outside, self._table(node)
        clients = [
            client_address
            for client_address in out.range_clients[node]
            if family_of(client_address) is family
        ]
        for remote in (out.remote[node][family], *clients):
            yield f"route add {remote} dev {REMOTE}"
            yield f"rule add from {remote} iif {REMOTE} lookup {table}"
            yield f"rule add to {remote} iif {ELSEWHERE} lookup {table}"
        yield f"rule add to {out.client[node][family]} iif {ELSEWHERE} lookup {table}"

    def _stub(self, own: list[Address], family: Family) -> Iterator[str]:
        router = self.layout.outside.router[family]
        yield from (_address(address, UPLINK) for address in own)
        yield f"route add {router} dev {UPLINK}"
        yield _default(router, UPLINK)

    def _tables(self, family: Family) -> Iterator[str]:
        """Table for each node that sends everything through it, except packets to the nodes themselves."""
        for node in self.layout.nodes:
            table = f" table {self._table(node.name)}"
            for other in self.layout.nodes:
                yield f"route add {other.address[family]} dev {UPLINK}{table}"
            yield _default(node.address[family], UPLINK) + table

    def _table(self, node: str) -> int:
        return _FIRST_TABLE + [one.name for one in self.layout.nodes].index(node)


def _crowd(gateway: Address) -> Iterator[str]:
    """Routes that send packets between pods of one namespace out through their node, as if each had its own."""
    table = f" table {_CROWD_TABLE}"
    yield f"route add {gateway} dev {UPLINK}{table}"
    yield _default(gateway, UPLINK) + table
    yield f"rule add pref 1 iif {UPLINK} lookup local"
    yield f"rule add pref 2 iif lo lookup {_CROWD_TABLE}"
    yield "rule del pref 0"


def _veth(here: str, interface: str, there: str, peer: str) -> str:
    return f"link add {interface} netns {here} type veth peer name {peer} netns {there}"


def _address(address: Address, interface: str) -> str:
    nodad = " nodad" if address.version == 6 else ""
    return f"address add {address}/{address.max_prefixlen} dev {interface}{nodad}"


def _default(gateway: Address, interface: str) -> str:
    return f"route add default via {gateway} dev {interface} onlink"
