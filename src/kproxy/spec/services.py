"""Which Services a proxy serves, and under which addresses.

Part of the specification: from API objects only, one family at a time.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from kproxy.model import api
from kproxy.model.network import Address, Family, Protocol, family_of, parse_address
from kproxy.spec.clauses import clause
from kproxy.spec.outcome import ClauseId

Reasons = tuple[ClauseId, ...]


class ServiceAddressKind(enum.Enum):
    """The kinds of address under which a Service is reached."""

    CLUSTER_IP = "cluster IP"
    EXTERNAL_IP = "external IP"
    LOAD_BALANCER_IP = "load balancer IP"
    NODE_PORT = "node port"


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """One address of a Service (None: any node's own, for a node port), and how it was written."""

    kind: ServiceAddressKind
    address: Address | None
    text: str = ""


def why_not_proxied(service: api.Service, family: Family) -> ClauseId | None:
    """Why a Service is not served in a family, or None if it is."""
    if api.PROXY_NAME_LABEL in service.metadata.labels:
        return clause("objects.proxy-name-label.untouched")
    if service.spec.type == "ExternalName":
        return clause("objects.external-name.untouched")
    if service.spec.cluster_ip == "None":
        return clause("objects.headless.untouched")
    if not service.spec.cluster_ip:
        return clause("objects.without-cluster-ip.untouched")
    if cluster_ip(service, family) is None:
        return clause("objects.single-family.other-family-untouched")
    return None


def proxied_services(cluster: api.Cluster, family: Family) -> Iterator[api.Service]:
    """The Services a proxy serves in a family."""
    return (s for s in cluster.services.values() if why_not_proxied(s, family) is None)


def cluster_ip(service: api.Service, family: Family) -> ServiceAddress | None:
    """The Service's cluster IP of a family."""
    return next(_addresses_of_kind(ServiceAddressKind.CLUSTER_IP, _cluster_ip_texts(service), family), None)


def _cluster_ip_texts(service: api.Service) -> list[str]:
    return service.spec.cluster_ips or [service.spec.cluster_ip]


def external_ips(service: api.Service, family: Family) -> Iterator[ServiceAddress]:
    """The Service's external IPs of a family; text that is no address is passed over."""
    return _addresses_of_kind(ServiceAddressKind.EXTERNAL_IP, service.spec.external_ips or [], family)


def load_balancer_ips(service: api.Service, family: Family) -> Iterator[ServiceAddress]:
    """The Service's load balancer IPs of a family that nodes serve: those of mode VIP."""
    ingress = service.status.load_balancer.ingress or []
    served = [entry.ip for entry in ingress if entry.ip and entry.ip_mode in {None, "VIP"}]
    return _addresses_of_kind(ServiceAddressKind.LOAD_BALANCER_IP, served, family)


def ip_mode_proxy_addresses(service: api.Service) -> Iterator[Address]:
    """The Service's load balancer IPs that nodes must leave alone: those of mode Proxy."""
    ingress = service.status.load_balancer.ingress or []
    found = (parse_address(entry.ip) for entry in ingress if entry.ip_mode == "Proxy")
    return (address for address in found if address is not None)


def _addresses_of_kind(
    kind: ServiceAddressKind, texts: list[str], family: Family
) -> Iterator[ServiceAddress]:
    for text in texts:
        address = parse_address(text)
        if address is not None and family_of(address) is family:
            yield ServiceAddress(kind, address, text)


def service_addresses(
    service: api.Service, family: Family, *, allow_external_ips: bool
) -> Iterator[ServiceAddress]:
    """Every address of a Service that is its own: all but the nodes' addresses."""
    own = cluster_ip(service, family)
    if own is not None:
        yield own
    if allow_external_ips:
        yield from external_ips(service, family)
    yield from load_balancer_ips(service, family)


def service_ports(service: api.Service) -> list[api.ServicePort]:
    """The Service's ports."""
    return service.spec.ports or []


def protocol_of(text: str | None) -> Protocol | None:
    """A port's protocol; the API's default is TCP.  None for one that we do not know."""
    return next((p for p in Protocol if p.value == (text or "TCP")), None)
