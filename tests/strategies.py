"""Hypothesis strategies for API objects, good and bad.

The worlds are small on purpose: few names, addresses and ports, so that objects meet, contradict
and repeat each other.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from kproxy import api
from kproxy.api import Cluster, Key, key_of

T = TypeVar("T")
Item = TypeVar("Item", api.Service, api.EndpointSlice)

NAMESPACES = ("a", "b")
NAMES = ("db", "web", "x")
NODES = ("node-1", "node-2")
ZONES = ("east", "west")
PORT_NAMES = ("", "dns", "http")
PROTOCOLS = ("TCP", "UDP", "SCTP")

_rarely = st.integers(0, 9).map(lambda number: number == 0)


def addresses() -> st.SearchStrategy[str]:
    """Texts where an address is expected: mostly good ones, of both families."""
    good = st.sampled_from(
        ("10.0.0.1", "10.0.0.2", "10.0.0.3", "010.0.0.2", "fd00::1", "fd00::2", "::ffff:10.0.0.3")
    )
    return st.one_of(good, good, st.sampled_from(("", "10.0.0", "nonsense", "fe80::1%eth0", "300.1.1.1")))


def cidrs() -> st.SearchStrategy[str]:
    """Texts where a CIDR is expected."""
    return st.sampled_from(
        (" 10.0.0.0/8", "10.0.0.1/32", "0.0.0.0/0", "fd00::/64", "::/0", "10.0.0.0/99", "x")
    )


def port_numbers() -> st.SearchStrategy[int]:
    """Port numbers, seldom out of range."""
    return st.sampled_from((80, 80, 53, 443, 53, 443, 0, 70000, -1))


def service_ports() -> st.SearchStrategy[api.ServicePort]:
    return st.builds(
        api.ServicePort,
        name=st.one_of(st.none(), st.sampled_from(PORT_NAMES)),
        protocol=st.sampled_from((*PROTOCOLS, "TCP", "UDP", "ICMP")),
        port=port_numbers(),
        node_port=st.sampled_from((0, 30000, 30001, 99999)),
    )


def _short_list(items: st.SearchStrategy[T], size: int = 2) -> st.SearchStrategy[list[T] | None]:
    return st.one_of(st.none(), st.lists(items, max_size=size))


def _labels(label: str) -> st.SearchStrategy[dict[str, str]]:
    return _rarely.map(lambda there: {label: ""} if there else {})


@st.composite
def services(draw: st.DrawFn) -> api.Service:
    """A Service, proxied or not, with some senseless fields."""
    cluster_ips = draw(st.lists(addresses(), max_size=2))
    first = draw(
        st.sampled_from((cluster_ips[0] if cluster_ips else "", "None"))
        if draw(_rarely)
        else st.just("10.9.0.1")
    )
    policies = st.sampled_from(("", "Cluster", "Local", "Elsewhere"))
    spec = api.ServiceSpec(
        type=draw(st.sampled_from(("ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer", "ExternalName"))),
        ports=draw(_short_list(service_ports(), 3)),
        cluster_ip=first,
        cluster_ips=cluster_ips,
        external_ips=draw(_short_list(addresses())),
        load_balancer_source_ranges=draw(_short_list(cidrs())),
        external_traffic_policy=draw(policies),
        internal_traffic_policy=draw(st.one_of(st.none(), policies)),
        session_affinity=draw(st.sampled_from(("None", "ClientIP"))),
        session_affinity_config=draw(
            st.one_of(
                st.none(),
                st.builds(
                    api.SessionAffinityConfig,
                    st.one_of(st.none(), st.builds(api.ClientIPConfig, st.sampled_from((None, 0, 5, 10**6)))),
                ),
            )
        ),
        health_check_node_port=draw(st.sampled_from((0, 32000))),
    )
    ingress = st.builds(
        api.LoadBalancerIngress, addresses(), st.just(""), st.sampled_from((None, "VIP", "Proxy"))
    )
    return api.Service(
        metadata=api.Metadata(
            name=draw(st.sampled_from(NAMES)),
            namespace=draw(st.sampled_from(NAMESPACES)),
            labels=draw(_labels(api.PROXY_NAME_LABEL)),
        ),
        spec=spec,
        status=api.ServiceStatus(api.LoadBalancerStatus(draw(_short_list(ingress)))),
    )


def endpoints() -> st.SearchStrategy[api.Endpoint]:
    condition = st.sampled_from((None, True, False))
    return st.builds(
        api.Endpoint,
        addresses=st.one_of(st.none(), st.lists(addresses(), max_size=2)),
        conditions=st.one_of(st.none(), st.builds(api.EndpointConditions, condition, condition, condition)),
        hints=st.one_of(
            st.none(),
            st.builds(
                api.EndpointHints,
                _short_list(st.sampled_from(ZONES).map(api.ForZone)),
                _short_list(st.sampled_from(NODES).map(api.ForNode)),
            ),
        ),
        node_name=st.sampled_from((None, "", *NODES)),
    )


@st.composite
def slices(draw: st.DrawFn) -> api.EndpointSlice:
    """An EndpointSlice of some Service, or of none."""
    owner = draw(st.sampled_from((*NAMES, *NAMES, "", None)))
    ports = st.builds(
        api.EndpointPort,
        name=st.one_of(st.none(), st.sampled_from(PORT_NAMES)),
        protocol=st.sampled_from((None, *PROTOCOLS, "ICMP")),
        port=st.sampled_from((None, 0, 8080, 8080, 9090, 70000)),
    )
    return api.EndpointSlice(
        metadata=api.Metadata(
            name=draw(st.sampled_from(("s1", "s2", "s3", "s4"))),
            namespace=draw(st.sampled_from(NAMESPACES)),
            labels=draw(_labels(api.HEADLESS_LABEL))
            | ({} if owner is None else {api.SERVICE_NAME_LABEL: owner}),
        ),
        address_type=draw(st.sampled_from(("IPv4", "IPv4", "IPv6", "FQDN"))),
        endpoints=draw(_short_list(endpoints(), 4)),
        ports=draw(_short_list(ports, 3)),
    )


@st.composite
def clusters(draw: st.DrawFn, max_objects: int = 5) -> Cluster:
    """Services and EndpointSlices in any order."""
    return Cluster(
        services={key_of(item): item for item in draw(st.lists(services(), max_size=max_objects))},
        slices={key_of(item): item for item in draw(st.lists(slices(), max_size=max_objects))},
    )


@st.composite
def _changed(draw: st.DrawFn, before: Mapping[Key, Item], items: st.SearchStrategy[Item]) -> dict[Key, Item]:
    after = dict(before)
    match draw(st.sampled_from(("put", "put", "remove", "move"))):
        case "remove" if after:
            del after[draw(st.sampled_from(sorted(after)))]
        case "move" if after:
            key = draw(st.sampled_from(sorted(after)))
            after[key] = after.pop(key)
        case _:
            item = draw(items)
            after[key_of(item)] = item
    return after


@st.composite
def successors(draw: st.DrawFn, before: Cluster) -> Cluster:
    """What may come after ``before``: one object put, taken away, or moved to the end."""
    if draw(st.booleans()):
        return replace(before, services=draw(_changed(before.services, services())))
    return replace(before, slices=draw(_changed(before.slices, slices())))


@st.composite
def histories(draw: st.DrawFn, max_changes: int = 4) -> list[Cluster]:
    """Clusters, each the successor of the one before."""
    history = [draw(clusters())]
    for _ in range(draw(st.integers(1, max_changes))):
        history.append(draw(successors(history[-1])))
    return history
