"""Kubernetes objects of a case, as JSON. Pure.

The objects are written as an API server would store them: defaults filled in, addresses allocated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import CaseEndpoint, CaseService, Policy, Port, SourceRange, Type
from kproxy.model.network import Family, Network

Document = dict[str, Any]
"""Kubernetes object as JSON."""

SECONDARY_SLICES = 100
"""First number of the slices of a dual-stack Service's second family."""


def kubernetes_objects(instance: Instance, service: CaseService) -> tuple[Document, ...]:
    """Service and its EndpointSlices as JSON, Service first; then its Endpoints, if any."""
    legacy = (_endpoints(instance, service),) if service.legacy_endpoints else ()
    return (_service(instance, service), *_slices(instance, service), *legacy)


def _service(instance: Instance, service: CaseService) -> Document:
    spec: Document = {
        "type": service.type.value,
        "ports": [_service_port(instance, service, port) for port in service.ports],
        "ipFamilies": [family.value for family in _families(instance, service)],
        "ipFamilyPolicy": "RequireDualStack" if service.dual_stack else "SingleStack",
        "internalTrafficPolicy": (service.internal_policy or Policy.CLUSTER).value,
        "sessionAffinity": "None",
    }
    addresses = [str(instance.cluster_ip(service, family)) for family in _families(instance, service)]
    spec["clusterIPs"] = ["None"] if service.headless else addresses
    spec["clusterIP"] = spec["clusterIPs"][0]
    if service.without_cluster_ip:
        del spec["clusterIPs"], spec["clusterIP"]
    spec.update(_external_fields(instance, service))
    if service.traffic_distribution:
        spec["trafficDistribution"] = service.traffic_distribution
    if service.affinity_seconds is not None:
        spec["sessionAffinity"] = "ClientIP"
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": service.affinity_seconds}}
    if service.type is Type.EXTERNAL_NAME:
        spec["externalName"] = "example.com"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            **_metadata(instance, service.name, dict(service.labels)),
            "annotations": dict(service.annotations),
        },
        "spec": spec,
        "status": {"loadBalancer": _load_balancer(instance, service)},
    }


def _families(instance: Instance, service: CaseService) -> tuple[Family, ...]:
    """Families of the Service, its primary one first."""
    others = tuple(family for family in Family if family is not instance.family)
    return (instance.family, *others) if service.dual_stack else (instance.family,)


def _external_fields(instance: Instance, service: CaseService) -> Document:
    fields: Document = {}
    external_ips = [str(instance.external_ip(service, i)) for i in range(service.external_ips)]
    if external_ips or service.literal_external_ips:
        fields["externalIPs"] = [*service.literal_external_ips, *external_ips]
    if external_ips or service.type in {Type.NODE_PORT, Type.LOAD_BALANCER}:
        fields["externalTrafficPolicy"] = (service.external_policy or Policy.CLUSTER).value
    if service.type is Type.LOAD_BALANCER:
        fields["allocateLoadBalancerNodePorts"] = any(p.node_port for p in service.ports)
        if service.external_policy is Policy.LOCAL:
            fields["healthCheckNodePort"] = instance.health_check_port(service)
    ranges = [
        *service.literal_source_ranges,
        *(str(source_range_network(instance, r)) for r in service.source_ranges),
    ]
    if ranges:
        fields["loadBalancerSourceRanges"] = ranges
    return fields


def _service_port(instance: Instance, service: CaseService, port: Port) -> Document:
    document: Document = {
        "protocol": port.protocol.value,
        "port": port.number,
        "targetPort": instance.target_port(service, port),
    }
    if port.name:
        document["name"] = port.name
    if port.app_protocol:
        document["appProtocol"] = port.app_protocol
    if node_port := instance.node_port(service, port):
        document["nodePort"] = node_port
    return document


def _load_balancer(instance: Instance, service: CaseService) -> Document:
    ingress: list[Document] = [{"ip": text, "ipMode": "VIP"} for text in service.raw_vips]
    for index, vip in enumerate(service.vips):
        if vip.hostname_only:
            ingress.append({"hostname": f"lb-{index}.example.com"})
            continue
        entry: Document = {"ip": str(instance.vip(service, index))}
        if vip.ip_mode:
            entry["ipMode"] = vip.ip_mode
        ingress.append(entry)
    return {"ingress": ingress} if ingress else {}


def source_range_network(instance: Instance, source_range: SourceRange | str) -> Network:
    """Network of a source-range entry."""
    topology = instance.topology
    match source_range:
        case SourceRange.CLUSTER_CIDR:
            return topology.cluster_cidr[instance.family]
        case SourceRange.NODE_NETWORK:
            return topology.node_network[instance.family]
        case SourceRange.REMOTE_NETWORK:
            return topology.remote_network[instance.family]
        case SourceRange():
            return _RANGES[source_range][instance.family]
        case "client":
            return ip_network(topology.client_address["a"][instance.family])
        case "remote":
            return ip_network(topology.remote_address["a"][instance.family])
        case _:
            return ip_network(instance.address_on(source_range))


def _slices(instance: Instance, service: CaseService) -> Iterator[Document]:
    groups: dict[tuple[int, int], list[CaseEndpoint]] = {}
    for endpoint in service.endpoints:
        groups.setdefault((endpoint.slice, endpoint.shift), []).append(endpoint)
    for (number, shift), endpoints in groups.items():
        yield _slice(instance, service, f"{service.name}-{number}-{shift}", shift, endpoints)
        for family in () if service.slices_of_one_family else _families(instance, service)[1:]:
            name = f"{service.name}-{SECONDARY_SLICES + number}-{shift}"
            yield _slice(instance, service.replace(address_type=family.value), name, shift, endpoints)


def _slice(
    instance: Instance, service: CaseService, name: str, shift: int, endpoints: list[CaseEndpoint]
) -> Document:
    labels = dict(service.slice_labels)
    if service.slice_owner:
        labels["kubernetes.io/service-name"] = service.name
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": _metadata(instance, name, labels),
        "addressType": service.address_type or instance.family.value,
        "endpoints": [one for endpoint in endpoints for one in _endpoints_of(instance, service, endpoint)],
        "ports": list(_slice_ports(instance, service, shift)),
    }


def _slice_ports(instance: Instance, service: CaseService, shift: int) -> Iterator[Document]:
    if service.unnumbered_slice_port:
        yield {"name": "unnumbered", "protocol": "TCP"}
    for port in service.slice_ports or service.ports:
        number = instance.target_port(service, port, shift)
        if service.incomplete_slice_ports:
            yield {"protocol": port.protocol.value, "port": number + 1}
            yield {"name": port.name, "protocol": port.protocol.value}
            yield {"name": port.name, "protocol": port.protocol.value, "port": 0}
        yield {"name": port.name, "protocol": port.protocol.value, "port": number}


def _endpoints(instance: Instance, service: CaseService) -> Document:
    ports = [
        {"name": p.name, "protocol": p.protocol.value, "port": instance.target_port(service, p)}
        for p in service.ports
    ]
    addresses = [{"ip": str(instance.address_on(on))} for on in service.legacy_endpoints]
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": _metadata(instance, service.name, {}),
        "subsets": [{"addresses": addresses, "ports": ports}],
    }


def _endpoints_of(instance: Instance, service: CaseService, endpoint: CaseEndpoint) -> Iterator[Document]:
    whole = _endpoint(instance, service, endpoint)
    if not endpoint.many:
        yield whole
        return
    family = Family(service.address_type) if service.address_type else instance.family
    for address in replace(instance, family=family).addresses_on(endpoint.on, endpoint.first, endpoint.many):
        yield {**whole, "addresses": [str(address)]}


def _endpoint(instance: Instance, service: CaseService, endpoint: CaseEndpoint) -> Document:
    topology = instance.topology
    node = endpoint.on if endpoint.on in topology.nodes else topology.node_of(endpoint.on)
    others = [str(instance.address_on(pod)) for pod in endpoint.also]
    document: Document = {"addresses": [_endpoint_address(instance, service, endpoint), *others]}
    conditions = {
        name: value
        for name in ("ready", "serving", "terminating")
        if (value := getattr(endpoint, name)) is not None
    }
    if conditions:
        document["conditions"] = conditions
    listed = topology.hostnames[node] if endpoint.listed_node is None else endpoint.listed_node
    if listed:
        document["nodeName"] = listed
    hints: Document = {}
    if endpoint.zones:
        hints["forZones"] = [{"name": zone} for zone in endpoint.zones]
    if endpoint.nodes:
        hints["forNodes"] = [{"name": topology.hostnames[name]} for name in endpoint.nodes]
    if hints:
        document["hints"] = hints
    return document


def _endpoint_address(instance: Instance, service: CaseService, endpoint: CaseEndpoint) -> str:
    match service.address_type:
        case None if endpoint.leading_zeros:
            return ".".join(f"0{part}" for part in str(instance.address_on(endpoint.on)).split("."))
        case None:
            return str(instance.address_on(endpoint.on))
        case "FQDN":
            return f"{endpoint.on}.example.com"
        case other:
            return str(instance.address_on(endpoint.on, Family(other)))


def _metadata(instance: Instance, name: str, labels: dict[str, str]) -> Document:
    return {"name": name, "namespace": instance.namespace, "labels": labels}


def _both(v4: str, v6: str) -> dict[Family, Network]:
    return {Family.IPV4: ip_network(v4), Family.IPV6: ip_network(v6)}


_RANGES: dict[SourceRange, dict[Family, Network]] = {
    SourceRange.EVERYWHERE: _both("0.0.0.0/0", "::/0"),
    SourceRange.LOWER_HALF: _both("0.0.0.0/1", "::/1"),
    SourceRange.UPPER_HALF: _both("128.0.0.0/1", "8000::/1"),
    SourceRange.NOWHERE: _both("192.0.2.128/25", "2001:db8:ffff::/64"),
}
