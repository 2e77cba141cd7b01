"""The cluster of a bench: many Services with fictitious endpoints, a few with real ones.

The made-up pods have addresses of the lab's cluster CIDR that no node's pods have.  Pure: documents and
a plan in memory; `tests.bench.stage` puts the documents into the lab's API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network
from itertools import count
from typing import Any, Self

import msgspec

from kproxy.conformance.binding.lab_objects import node_documents, service_cidr_document
from kproxy.conformance.case import Profile
from kproxy.conformance.subjects.configuration import NodeConfiguration, kube_proxy_configuration
from kproxy.lab.topology import LAB
from kproxy.model import api
from kproxy.model.network import Address, Family, Protocol, family_of
from kproxy.proxy.daemon.config.load import load_configuration
from kproxy.proxy.daemon.config.plan_settings import plan_settings
from kproxy.proxy.plan import Plan, make_plan
from kproxy.proxy.snapshot import normalise

Document = dict[str, Any]

NODE = "a"
"""The one node whose proxy runs."""

_ELSEWHERE = "b"
"""The node of fictitious pods, as nearly all pods of a large cluster are on other nodes."""

NAMESPACE = "bench"
PORT = 80
POD_PORT = 8080
PROFILE = Profile(name="bench")

_V4 = Family.IPV4
_FIRST_CLUSTER_IP = 1024
_FIRST_LIVE_IP = 16
_FIRST_POD = 3 << 8
"""Above the pods of the lab's own nodes, 10.244.1.0/24 and 10.244.2.0/24."""

_CLUSTER_IPS = LAB.service_cidr[_V4].num_addresses - _FIRST_CLUSTER_IP - 256
_STRIDE = 40_503
"""Without a common divisor with `_CLUSTER_IPS`, and about a golden section of 65,536: multiples look drawn at random."""

_CROWD_POD, _CROWD_PORT = "a1", 9101

_MEASURED = 64
"""Services to choose those from whose rules come first, in the middle and last."""

_FIRST_NODE_PORT, _NODE_PORTS = 30_000, 2_000
"""In the default range, 30000 to 32767."""

_EXTERNAL_IPS = ip_network("198.18.0.0/15")
"""For benches of networks (RFC 2544): on no node, so that packets to them leave a pod by its node."""

_MOST_SERVICES = _CLUSTER_IPS - _NODE_PORTS - _MEASURED
"""The rest is for Services with node ports and of UDP."""

_PODS = LAB.cluster_cidr[_V4].num_addresses - _FIRST_POD - 256


@dataclass(frozen=True, slots=True)
class Size:
    """Number of Services, and of endpoints of each."""

    services: int
    endpoints: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``5000x5``; ValueError when it is none, or does not fit the lab's service CIDR."""
        services, _, endpoints = text.partition("x")
        size = cls(int(services), int(endpoints))
        if size.services < 1 or not 1 <= size.endpoints <= _PODS:
            raise ValueError(f"{text}: at least 1x1, and at most {_PODS} endpoints")
        if size.services > _MOST_SERVICES:
            raise ValueError(f"{text}: the lab's service CIDR has room for {_MOST_SERVICES} Services")
        return size

    def __str__(self) -> str:
        return f"{self.services}x{self.endpoints}"


@dataclass(frozen=True, slots=True)
class LiveEndpoint:
    """A port of a lab's pod with a server."""

    pod: str
    port: int

    @property
    def who(self) -> str:
        """The name in its server's reply."""
        return f"{self.pod}:{self.port}"

    def address(self, family: Family = _V4) -> Address:
        """The pod's address."""
        return LAB.pod_address[self.pod][family]


LIVE_ENDPOINTS = tuple(LiveEndpoint(pod, port) for pod in LAB.pods[NODE] for port in (9001, 9002))


@dataclass(frozen=True, slots=True)
class Live:
    """A Service with one real endpoint, so that its path through the data plane can be tested; ``node_port`` 0: none."""

    name: str
    cluster_ip: Address
    protocol: Protocol = Protocol.TCP
    node_port: int = 0
    external_ip: Address | None = None

    def service(self) -> Document:
        """Its Service."""
        found = _service(self.name, self.cluster_ip, self.protocol)
        if self.node_port:
            found["spec"]["type"] = "NodePort"
            found["spec"]["ports"][0]["nodePort"] = self.node_port
        if self.external_ip:
            found["spec"]["externalIPs"] = [str(self.external_ip)]
        return found

    def slice(self, endpoint: LiveEndpoint) -> Document:
        """Its one EndpointSlice."""
        address = endpoint.address(family_of(self.cluster_ip))
        return _slice(self.name, [address], endpoint.port, self.protocol)


def standing(size: Size) -> tuple[Live, ...]:
    """Live Services that sort before, amid and after all others, the one whose endpoint changes first."""
    names = (f"{_filler_name(size.services // 2)}-live", "a-live", "z-live")
    return tuple(_beside_filler(name, number) for number, name in enumerate(names))


def added(number: int) -> Live:
    """The ``number``-th live Service that comes later."""
    return _beside_filler(f"{_filler_name(number * 97)}-added", len(standing(Size(1, 1))) + number)


def measured(size: Size) -> tuple[Live, ...]:
    """Some of `filler`'s Services, evenly spread, whose slices the bench of the data path replaces by real ones."""
    parts = min(size.services, _MEASURED)
    numbers = (size.services * part // parts for part in range(parts))
    return tuple(Live(_filler_name(number), _filler_ip(number)) for number in numbers)


def with_node_ports(size: Size) -> tuple[Live, ...]:
    """Further Services, each with a node port and an external IP: as many, as far as the range of node ports goes."""
    return tuple(
        Live(
            f"node-port-{number:06}",
            _filler_ip(size.services + number),
            node_port=_FIRST_NODE_PORT + number,
            external_ip=_EXTERNAL_IPS[number + 1],
        )
        for number in range(min(size.services, _NODE_PORTS))
    )


def flows() -> tuple[Live, Live]:
    """The Services of flows that last, of TCP and of UDP."""
    return (
        _beside_filler("flow-tcp", _FIRST_CLUSTER_IP - _FIRST_LIVE_IP - 2),
        replace(_beside_filler("flow-udp", _FIRST_CLUSTER_IP - _FIRST_LIVE_IP - 3), protocol=Protocol.UDP),
    )


def of_udp(size: Size) -> tuple[Live, ...]:
    """Further Services of UDP, a few among all others."""
    first = size.services + min(size.services, _NODE_PORTS)
    numbers = range(min(size.services, _MEASURED))
    return tuple(Live(f"udp-{number:06}", _filler_ip(first + number), Protocol.UDP) for number in numbers)


def of_ipv6(size: Size) -> tuple[Live, ...]:
    """As many Services again, in IPv6."""
    numbers = range(size.services)
    return tuple(Live(f"ipv6-{number:06}", _filler_ip(number, Family.IPV6)) for number in numbers)


@dataclass(frozen=True, slots=True)
class Crowd:
    """A Service of very many real endpoints: all addresses of one pod, at as many ports as that takes."""

    endpoints: int

    @property
    def service(self) -> Live:
        """The Service."""
        return _beside_filler("crowd", _FIRST_CLUSTER_IP - _FIRST_LIVE_IP - 1)

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of the pod that need a server."""
        return tuple(_CROWD_PORT + number for number in range(-(-self.endpoints // len(self._addresses))))

    @property
    def _addresses(self) -> Sequence[Address]:
        return tuple(LAB.pod_range[_CROWD_POD][_V4].hosts())

    def documents(self) -> Iterator[Document]:
        """The Service, and a slice for each port."""
        yield self.service.service()
        left = self.endpoints
        for port in self.ports:
            found = _slice(self.service.name, self._addresses[:left], port)
            found["metadata"]["name"] += f"-{port}"
            yield found
            left -= len(self._addresses)


def filler(size: Size) -> Iterator[Document]:
    """The Services without clients, each with its slice."""
    for number in range(size.services):
        name = _filler_name(number)
        yield _service(name, _filler_ip(number))
        # pods that come round again come with another port
        turn, place = divmod(number, _PODS // size.endpoints)
        pods = (_pod(place * size.endpoints + k) for k in range(size.endpoints))
        yield _slice(name, pods, POD_PORT + turn, node=_ELSEWHERE)


def unrelated() -> Iterator[Document]:
    """Slices of which no rule follows, without end: of no Service, of a family that the Service has not, with another label alone."""
    live = standing(Size(1, 1))[1]
    for number in count():
        match number % 3:
            case 0:
                yield _slice(f"stranger-{number % 1000}", [_pod(number % 200)], POD_PORT)
            case 1:
                found = _slice(live.name, [LIVE_ENDPOINTS[0].address(Family.IPV6)], POD_PORT + number % 100)
                found["metadata"]["name"] += "-ipv6"
                yield found
            case _:
                found = live.slice(LIVE_ENDPOINTS[0])
                found["metadata"]["labels"]["example.com/number"] = str(number)
                yield found


def documents(size: Size) -> Iterator[Document]:
    """All objects the API server begins with."""
    yield from node_documents()
    yield service_cidr_document()
    yield from filler(size)
    for live in standing(size):
        yield live.service()
        yield live.slice(LIVE_ENDPOINTS[0])


def planned(objects: Iterable[Document], mode: str) -> Plan:
    """kproxy's plan of node `NODE` for these objects in IPv4, from which floors are rendered."""
    cluster = api.parse_cluster(msgspec.json.encode({"kind": "List", "items": list(objects)}))
    config = load_configuration(
        kube_proxy_configuration(PROFILE, NodeConfiguration(node=NODE, mode=mode, kubeconfig="none"))
    ).config
    name = LAB.hostnames[NODE]
    addresses = LAB.local_addresses(NODE, _V4)
    settings = plan_settings(config, _V4, name, cluster.nodes.get(("", name)), addresses)
    return make_plan(normalise(cluster, _V4), settings)


def _beside_filler(name: str, number: int) -> Live:
    """A live Service with one of the cluster IPs that `filler` leaves alone."""
    return Live(name, LAB.service_cidr[_V4][_FIRST_LIVE_IP + number])


def _filler_ip(number: int, family: Family = _V4) -> Address:
    """A cluster IP as an API server draws it: anywhere in the range."""
    return LAB.service_cidr[family][_FIRST_CLUSTER_IP + number * _STRIDE % _CLUSTER_IPS]


def _filler_name(number: int) -> str:
    return f"service-{number:06}"


def _pod(number: int) -> Address:
    return LAB.cluster_cidr[_V4][_FIRST_POD + number]


def _service(name: str, cluster_ip: Address, protocol: Protocol = Protocol.TCP) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": str(cluster_ip),
            "clusterIPs": [str(cluster_ip)],
            "ipFamilies": [family_of(cluster_ip).value],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "selector": {"app": name},
            "ports": [{"name": "http", "protocol": protocol.value, "port": PORT, "targetPort": POD_PORT}],
        },
    }


def _slice(
    name: str, pods: Iterable[Address], port: int, protocol: Protocol = Protocol.TCP, node: str = NODE
) -> Document:
    addresses = list(pods)
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-abcde",
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": family_of(addresses[0]).value,
        "endpoints": [
            {
                "addresses": [str(pod)],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "nodeName": LAB.hostnames[node],
            }
            for pod in addresses
        ],
        "ports": [{"name": "http", "protocol": protocol.value, "port": port}],
    }
