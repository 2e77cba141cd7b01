"""Normalisation of one Service: an API object in, one value of the snapshot out.

Every field is read by itself: a bad one is noted and left out, the others stay.
"""

from __future__ import annotations

from collections.abc import Iterable

from kproxy.model import api
from kproxy.model.api import key_of
from kproxy.model.network import Address, Family, Network, family_of, parse_address, parse_network
from kproxy.proxy.snapshot.endpoints import PROTOCOLS, PortKey, merge_endpoints, ready_endpoints
from kproxy.proxy.snapshot.fields import ReportNote, is_port, is_port_name, note_reporter
from kproxy.proxy.snapshot.values import Note, ServiceInfo, ServicePortInfo, ServicePortName, TrafficPolicy

DEFAULT_AFFINITY_SECONDS = 10800
"""The API's default of ``sessionAffinityConfig.clientIP.timeoutSeconds``: three hours."""

MAX_AFFINITY_SECONDS = 86400
"""The API's upper bound of ``timeoutSeconds``: one day."""


def normalise_service(
    item: api.Service | None, slices: tuple[api.EndpointSlice, ...], family: Family
) -> tuple[ServiceInfo | None, tuple[Note, ...]]:
    """The normalised Service, None when it is not proxied in this family, and the notes on fields that were ignored."""
    if item is None or not _is_proxied(item) or _has_no_family_address(item.spec, family):
        return None, ()
    notes: list[Note] = []
    report = note_reporter(item, notes)
    spec = item.spec
    cluster_ips = _addresses(spec.cluster_ips or [spec.cluster_ip], family, report)
    if not cluster_ips:
        return None, tuple(notes)
    external = _policy(spec.external_traffic_policy, report)
    health_check_port = _health_check_port(spec, external)
    service = ServiceInfo(
        key=key_of(item),
        cluster_ip=cluster_ips[0],
        external_ips=_addresses(spec.external_ips or (), family, report),
        load_balancer_ips=_load_balancer_ips(item.status.load_balancer, family, report),
        source_ranges=_source_ranges(spec.load_balancer_source_ranges or (), family, report),
        internal_policy=_policy(spec.internal_traffic_policy, report),
        external_policy=external,
        affinity_seconds=_affinity_seconds(spec, report),
        health_check_port=health_check_port,
        health_check_endpoints=ready_endpoints(slices, family) if health_check_port else frozenset(),
        ports=_ports(item, slices, family, notes),
    )
    return service, tuple(notes)


def _is_proxied(item: api.Service) -> bool:
    """True unless the Service is left to others.

    Left alone: headless, without cluster IP, ExternalName, or labelled for another proxy
    (``objects.headless.untouched``,
    ``objects.without-cluster-ip.untouched``, ``objects.external-name.untouched``,
    ``objects.proxy-name-label.untouched``).
    """
    return (
        item.spec.type != "ExternalName"
        and item.spec.cluster_ip not in ("", "None")
        and api.PROXY_NAME_LABEL not in item.metadata.labels
    )


def _has_no_family_address(spec: api.ServiceSpec, family: Family) -> bool:
    """True if a Service has no IPv6 cluster IP, by a cheap text test, in the IPv6 snapshot.

    Most Services have none. Its notes are then reported once, by the IPv4 snapshot.

    Clause ``objects.single-family.other-family-untouched``.
    """
    return family is Family.IPV6 and ":" not in spec.cluster_ip and ":" not in "".join(spec.cluster_ips or ())


def _addresses(texts: Iterable[str], family: Family, report: ReportNote) -> tuple[Address, ...]:
    """Addresses of the family among ``texts``, without repetition, in their order.

    Clauses ``external-ip.bad-text.skipped``, ``objects.addresses.leading-zeros-decimal``,
    ``slices.other-family.ignored``.
    """
    found: list[Address] = []
    for text in texts:
        address = parse_address(text)
        if address is None:
            report(f"{text!r} is not an IP address")
        elif family_of(address) is family and address not in found:
            found.append(address)
    return tuple(found)


def _load_balancer_ips(
    status: api.LoadBalancerStatus, family: Family, report: ReportNote
) -> tuple[Address, ...]:
    """Ingress addresses the node captures.

    Clauses ``load-balancer.reaches-ready-endpoint``, ``load-balancer.ip-mode-proxy.untouched``,
    ``load-balancer.hostname-only.ignored``.

    Clause ``load-balancer.other-family.skipped``.
    """
    ingress = status.ingress
    if not ingress:
        return ()
    return _addresses((i.ip for i in ingress if i.ip and i.ip_mode in (None, "VIP")), family, report)


def _source_ranges(texts: Iterable[str], family: Family, report: ReportNote) -> tuple[Network, ...] | None:
    """Source ranges of the family, None for no restriction.

    Clauses ``source-ranges.other-family-only.either``, ``source-ranges.zero-range.allows-all``,
    ``source-ranges.blanks-trimmed``.
    """
    found: dict[Network, None] = {}
    for text in texts:
        network = parse_network(text)
        if network is None:
            report(f"source range {text!r} is not a CIDR")
        elif network.version == (4 if family is Family.IPV4 else 6):
            found[network] = None
    if not found or any(network.prefixlen == 0 for network in found):
        return None
    return tuple(found)


def _policy(text: str | None, report: ReportNote) -> TrafficPolicy:
    """Traffic policy of a field; an unset or unknown value means Cluster (``cluster-ip.reaches-ready-endpoint``)."""
    if text == "Local":
        return TrafficPolicy.LOCAL
    if text not in (None, "", "Cluster"):
        report(f"traffic policy {text!r} is unknown; Cluster holds")
    return TrafficPolicy.CLUSTER


def _affinity_seconds(spec: api.ServiceSpec, report: ReportNote) -> int | None:
    if spec.session_affinity != "ClientIP":
        return None
    config = spec.session_affinity_config
    seconds = config.client_ip.timeout_seconds if config and config.client_ip else None
    if seconds is None:
        return DEFAULT_AFFINITY_SECONDS
    if not 0 < seconds <= MAX_AFFINITY_SECONDS:
        report(f"affinity timeout {seconds} is out of range; {DEFAULT_AFFINITY_SECONDS} holds")
        return DEFAULT_AFFINITY_SECONDS
    return seconds


def _health_check_port(spec: api.ServiceSpec, policy: TrafficPolicy) -> int | None:
    due = (
        spec.type == "LoadBalancer" and policy is TrafficPolicy.LOCAL and is_port(spec.health_check_node_port)
    )
    return spec.health_check_node_port if due else None


def _ports(
    item: api.Service, slices: tuple[api.EndpointSlice, ...], family: Family, notes: list[Note]
) -> tuple[ServicePortInfo, ...]:
    wanted = _wanted_ports(item, note_reporter(item, notes))
    merged = merge_endpoints(slices, wanted, family, notes)
    return tuple(
        ServicePortInfo(
            name=ServicePortName(*key_of(item), name, protocol.value),
            protocol=protocol,
            port=port.port,
            node_port=port.node_port or None,
            endpoints=merged[name, protocol],
        )
        for (name, protocol), port in wanted.items()
    )


def _wanted_ports(item: api.Service, report: ReportNote) -> dict[PortKey, api.ServicePort]:
    """Usable entries of ``spec.ports``; of two with the same name and protocol the first.

    Clauses ``protocol.same-number.independent``, ``protocol.udp.served``, ``protocol.sctp.served``.
    """
    wanted: dict[PortKey, api.ServicePort] = {}
    for port in item.spec.ports or ():
        protocol = PROTOCOLS.get(port.protocol)
        key = (port.name or "", protocol)
        if protocol is None or not is_port(port.port) or not 0 <= port.node_port < 65536:
            report(
                f"port {port.name!r} ({port.protocol} {port.port}, node port {port.node_port}) is not valid"
            )
        elif not is_port_name(port.name or ""):
            report(f"port {port.name!r} has no valid name")
        elif key in wanted:
            report(f"port {port.name!r} ({port.protocol} {port.port}) repeats a name")
        else:
            wanted[port.name or "", protocol] = port
    return wanted
