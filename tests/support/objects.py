"""Constructors of API objects for tests; omitted fields have the API's default."""

from collections.abc import Iterable

from kproxy.model import api
from kproxy.model.api import Cluster, key_of


def service(
    name: str = "web",
    cluster_ips: Iterable[str] = ("10.96.0.1",),
    ports: Iterable[api.ServicePort] = (api.ServicePort(name="http", port=80),),
    *,
    labels: dict[str, str] | None = None,
    ingress: Iterable[api.LoadBalancerIngress] = (),
    namespace: str = "test",
    **spec: object,
) -> api.Service:
    addresses = list(cluster_ips)
    return api.Service(
        metadata=api.Metadata(name=name, namespace=namespace, labels=labels or {}),
        spec=api.ServiceSpec(
            cluster_ip=addresses[0] if addresses else "",
            cluster_ips=addresses,
            ports=list(ports),
            **spec,  # type: ignore[arg-type]
        ),
        status=api.ServiceStatus(load_balancer=api.LoadBalancerStatus(ingress=list(ingress))),
    )


def endpoint(
    address: str,
    node: str | None = None,
    *,
    ready: bool | None = None,
    serving: bool | None = None,
    terminating: bool | None = None,
    zones: Iterable[str] = (),
    nodes: Iterable[str] = (),
) -> api.Endpoint:
    return api.Endpoint(
        addresses=[address],
        node_name=node,
        conditions=api.EndpointConditions(ready, serving, terminating),
        hints=api.EndpointHints(
            for_zones=[api.ForZone(zone) for zone in zones], for_nodes=[api.ForNode(name) for name in nodes]
        ),
    )


def slice_of(
    *endpoints: api.Endpoint,
    service: str | None = "web",
    name: str = "web-1",
    namespace: str = "test",
    ports: Iterable[api.EndpointPort] = (api.EndpointPort(name="http", port=8080),),
    address_type: str = "IPv4",
    labels: dict[str, str] | None = None,
) -> api.EndpointSlice:
    owner = {} if service is None else {api.SERVICE_NAME_LABEL: service}
    return api.EndpointSlice(
        metadata=api.Metadata(name=name, namespace=namespace, labels={**owner, **(labels or {})}),
        address_type=address_type,
        endpoints=list(endpoints),
        ports=list(ports),
    )


def cluster(*objects: api.Service | api.EndpointSlice) -> Cluster:
    return Cluster(
        services={key_of(o): o for o in objects if isinstance(o, api.Service)},
        slices={key_of(o): o for o in objects if isinstance(o, api.EndpointSlice)},
    )
