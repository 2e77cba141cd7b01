"""Hypothesis strategies for API objects, good and bad.

The worlds are small on purpose: few names, addresses and ports, so that objects meet, contradict
and repeat each other.

A strategy is made once: Hypothesis validates each that it has not seen, which takes longer than to draw from it.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

from kproxy.model import api
from kproxy.model.api import Cluster, Key, key_of

T = TypeVar("T")
Item = TypeVar("Item", api.Service, api.EndpointSlice)

KEYS: tuple[Key, ...] = (("a", "web"), ("a", "x"), ("b", "web"))
"""Names of possible Services."""

SLICE_KEYS = st.sampled_from([("a", "s1"), ("a", "s2"), ("a", "s3"), ("b", "s1")])

NODES = ("node-1", "node-2")
ZONES = ("east", "west")
V4, V6 = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "010.0.0.2"), ("fd00::1", "fd00::2")
NOT_ADDRESSES = ("", "10.0.0", "nonsense", "fe80::1%eth0", "300.1.1.1", "::ffff:10.0.0.3")
CIDRS = (" 10.0.0.0/8", "10.0.0.1/32", "0.0.0.0/0", "fd00::/64", "::/0")


def mostly(usual: st.SearchStrategy[T], other: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """Mostly the usual, seldom the other: an object has effects only if most of its many fields are valid."""
    return st.integers(0, 19).flatmap(lambda number: other if number == 13 else usual)


def one_of(usual: tuple[T, ...], *other: T) -> st.SearchStrategy[T]:
    """Mostly one of the usual values, each as likely."""
    return st.sampled_from(usual * (20 * len(other) // len(usual)) + other if other else usual)


def short_list(
    items: st.SearchStrategy[T], size: int = 2, least: int = 0
) -> st.SearchStrategy[list[T] | None]:
    """A list as the API has it: it may be null."""
    lists: st.SearchStrategy[list[T] | None] = st.lists(items, min_size=least, max_size=size)
    return mostly(lists, st.none())


@cache
def addresses() -> st.SearchStrategy[str]:
    """Texts where an address is expected: mostly good ones, of both families."""
    return one_of(V4 + V6, *NOT_ADDRESSES)


@cache
def labels(label: str) -> st.SearchStrategy[dict[str, str]]:
    """Seldom the label that excludes the object from the proxy."""
    return mostly(st.just({}), st.just({label: ""}))


@cache
def service_ports() -> st.SearchStrategy[api.ServicePort]:
    return st.builds(
        api.ServicePort,
        name=one_of(("http",), "", None),
        protocol=one_of(("TCP",), "UDP", "SCTP", "ICMP"),
        port=one_of((80, 81), 0, -1, 70000),
        node_port=one_of((0, 30000), 30001, 99999),
    )


@cache
def affinities() -> st.SearchStrategy[api.SessionAffinityConfig | None]:
    seconds = st.builds(api.ClientIPConfig, st.sampled_from((None, 0, 5, 10**6)))
    return st.one_of(st.none(), st.builds(api.SessionAffinityConfig, st.one_of(st.none(), seconds)))


@cache
def cluster_ips() -> st.SearchStrategy[list[str]]:
    """Mostly one of each family; few enough for two Services to claim the same."""
    usual = [["10.9.0.1", "fd09::1"], ["fd09::2", "10.9.0.2"], ["10.0.0.1", "fd00::1"]]
    return mostly(st.sampled_from(usual), st.lists(addresses(), max_size=2))


SERVICE_KEYS = st.sampled_from(KEYS)
TYPES = one_of(("LoadBalancer", "ClusterIP", "NodePort"), "ExternalName")
PORTS = short_list(service_ports(), 3, 1)
EXTERNAL_IPS = short_list(addresses())
SOURCE_RANGES = short_list(one_of(CIDRS, "10.0.0.0/99", "x"))
POLICIES = one_of(("Local", "Cluster"), "", "Elsewhere")
INTERNAL_POLICIES = mostly(POLICIES.map(str), st.none())
SESSION_AFFINITIES = st.sampled_from(("None", "ClientIP"))
CHECK_PORTS = st.sampled_from((0, 32000))
INGRESS = short_list(st.builds(api.LoadBalancerIngress, addresses(), ip_mode=one_of((None, "VIP"), "Proxy")))


@cache
def first_cluster_ip(text: str) -> st.SearchStrategy[str]:
    """The field ``clusterIP`` beside ``clusterIPs`` that begin with this text."""
    return one_of((text,), "", "None")


@st.composite
def services(draw: st.DrawFn, keys: st.SearchStrategy[Key] | None = None) -> api.Service:
    """A Service, mostly proxied, with some senseless fields."""
    namespace, name = draw(SERVICE_KEYS if keys is None else keys)
    ips = draw(cluster_ips())
    return api.Service(
        metadata=api.Metadata(name=name, namespace=namespace, labels=draw(labels(api.PROXY_NAME_LABEL))),
        spec=api.ServiceSpec(
            type=draw(TYPES),
            ports=draw(PORTS),
            cluster_ip=draw(first_cluster_ip(ips[0] if ips else "")),
            cluster_ips=ips,
            external_ips=draw(EXTERNAL_IPS),
            load_balancer_source_ranges=draw(SOURCE_RANGES),
            external_traffic_policy=draw(POLICIES),
            internal_traffic_policy=draw(INTERNAL_POLICIES),
            session_affinity=draw(SESSION_AFFINITIES),
            session_affinity_config=draw(affinities()),
            health_check_node_port=draw(CHECK_PORTS),
        ),
        status=api.ServiceStatus(api.LoadBalancerStatus(draw(INGRESS))),
    )


@cache
def endpoints(texts: tuple[str, ...]) -> st.SearchStrategy[list[api.Endpoint] | None]:
    """Endpoints of a slice whose addresses are mostly these."""
    condition = st.sampled_from((None, True, False))
    hints = st.builds(
        api.EndpointHints,
        short_list(st.sampled_from(ZONES).map(api.ForZone), 2, 1),
        short_list(st.sampled_from(NODES).map(api.ForNode)),
    )
    endpoint = st.builds(
        api.Endpoint,
        addresses=short_list(one_of(texts, *NOT_ADDRESSES), 2, 1),
        conditions=st.one_of(st.none(), st.builds(api.EndpointConditions, condition, condition, condition)),
        hints=st.one_of(st.none(), hints),
        node_name=one_of(NODES, None, ""),
    )
    return short_list(endpoint, 3, 1)


OWNERS = one_of(tuple(sorted({name for _, name in KEYS})), "", None)
FAMILIES = st.sampled_from((("IPv4", V4), ("IPv6", V6)))
ADDRESS_TYPES = {family: one_of((family,), "IPv4", "FQDN") for family in ("IPv4", "IPv6")}
ENDPOINT_PORTS = short_list(
    st.builds(
        api.EndpointPort,
        name=one_of(("http",), "", None),
        protocol=one_of(("TCP", None), "UDP", "SCTP", "ICMP"),
        port=one_of((8080, 9090), None, 0, 70000),
    ),
    2,
    1,
)


@st.composite
def slices(draw: st.DrawFn, keys: st.SearchStrategy[Key] | None = None) -> api.EndpointSlice:
    """An EndpointSlice, mostly of some Service, which its name does not contain."""
    namespace, name = draw(SLICE_KEYS if keys is None else keys)
    owner = draw(OWNERS)
    family, texts = draw(FAMILIES)
    return api.EndpointSlice(
        metadata=api.Metadata(
            name=name,
            namespace=namespace,
            labels=draw(labels(api.HEADLESS_LABEL))
            | ({} if owner is None else {api.SERVICE_NAME_LABEL: owner}),
        ),
        address_type=draw(ADDRESS_TYPES[family]),
        endpoints=draw(endpoints(texts)),
        ports=draw(ENDPOINT_PORTS),
    )


SERVICES = st.lists(services(), min_size=1, max_size=3)
SLICES = st.lists(slices(), min_size=1, max_size=4)
CHANGES = st.sampled_from(("change", "renew", "remove", "move", "add"))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Services and EndpointSlices in any order."""
    return Cluster(
        services={key_of(item): item for item in draw(SERVICES)},
        slices={key_of(item): item for item in draw(SLICES)},
    )


@st.composite
def _changed(
    draw: st.DrawFn, before: Mapping[Key, Item], new: Callable[..., st.SearchStrategy[Item]]
) -> dict[Key, Item]:
    after = dict(before)
    if not after:
        item = draw(new())
        return {key_of(item): item}
    key = draw(st.sampled_from(sorted(after)))
    match draw(CHANGES):
        case "change":
            after[key] = draw(new(st.just(key)))
        case "renew":
            after[key] = copy(after[key])
        case "remove":
            del after[key]
        case "move":
            after[key] = after.pop(key)
        case _:
            item = draw(new())
            after[key_of(item)] = item
    return after


@st.composite
def successors(draw: st.DrawFn, before: Cluster) -> Cluster:
    """A possible successor of ``before``: one object added, changed, removed, listed last, or sent again."""
    if draw(st.booleans()):
        return replace(before, services=draw(_changed(before.services, services)))
    return replace(before, slices=draw(_changed(before.slices, slices)))


@st.composite
def histories(draw: st.DrawFn, max_changes: int = 4) -> list[Cluster]:
    """Clusters, each the successor of the one before."""
    history = [draw(clusters())]
    for _ in range(draw(st.integers(1, max_changes))):
        history.append(draw(successors(history[-1])))
    return history
