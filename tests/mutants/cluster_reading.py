"""Mutants that misread the cluster's objects (`kproxy.proxy.snapshot`), as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec

from kproxy.model import api
from kproxy.proxy import snapshot
from kproxy.proxy.snapshot import TrafficPolicy
from tests.mutants.mutant import Function, Patch, Wrap, mutant

Merged = dict[Any, tuple[snapshot.EndpointInfo, ...]]


def _endpoints(changed: Callable[[api.Endpoint, snapshot.EndpointInfo], snapshot.EndpointInfo]) -> Patch:
    """Patch that changes each endpoint read from a slice."""

    def wrap(read: Function) -> Function:
        return lambda item, address, port: changed(item, read(item, address, port))

    return Patch("kproxy.proxy.snapshot.endpoints:_endpoint", wrap)


def _merging(changed: Callable[[Merged], Merged]) -> Patch:
    """Patch that changes the merged endpoints of each port."""
    return Patch(
        "kproxy.proxy.snapshot.services:merge_endpoints", lambda merge: lambda *of: changed(merge(*of))
    )


def _services(changed: Callable[[snapshot.ServiceInfo], snapshot.ServiceInfo]) -> Patch:
    """Patch that changes each Service as it is read."""

    def wrap(read: Function) -> Function:
        def service_of(*of: Any) -> tuple[snapshot.ServiceInfo | None, tuple[snapshot.Note, ...]]:  # noqa: ANN401
            service, notes = read(*of)
            return service and changed(service), notes

        return service_of

    return Patch("kproxy.proxy.snapshot.incremental:normalise_service", wrap)


def _without_label(label: str) -> Wrap:
    """Wrap that hides a label from a function of an object."""

    def wrap(judge: Function) -> Function:
        def blind(item: Any, *of: Any) -> Any:  # noqa: ANN401
            labels = {name: text for name, text in item.metadata.labels.items() if name != label}
            metadata = msgspec.structs.replace(item.metadata, labels=labels)
            return judge(msgspec.structs.replace(item, metadata=metadata), *of)

        return blind

    return wrap


def _asking_for_all(resource: str) -> Patch:
    """The watch's own selection of objects would hide the mutant."""
    return Patch(f"kproxy.proxy.daemon.main:{resource}", lambda requested: replace(requested, selectors={}))


def _first_slice_only(merge: Function) -> Function:
    return lambda slices, *of: merge(tuple(slices)[:1], *of)


def _fifty(ranges: Function) -> Function:
    def some(*of: Any) -> Any:  # noqa: ANN401
        found = ranges(*of)
        return found[:50] if found else found

    return some


def _at_most(number: int) -> Wrap:
    return lambda merge: lambda *of: {key: found[:number] for key, found in merge(*of).items()}


def _first_port_only(wanted: Function) -> Function:
    return lambda *of: dict(list(wanted(*of).items())[:1])


def _on_the_port_of_the_first(found: Merged) -> Merged:
    return {
        key: tuple(msgspec.structs.replace(endpoint, port=endpoints[0].port) for endpoint in endpoints)
        for key, endpoints in found.items()
    }


def _any_mode(load_balancer_ips: Function) -> Function:
    def captured(status: api.LoadBalancerStatus, *of: Any) -> Any:  # noqa: ANN401
        ingress = [msgspec.structs.replace(entry, ip_mode=None) for entry in status.ingress or ()]
        return load_balancer_ips(api.LoadBalancerStatus(ingress=ingress), *of)

    return captured


def _terminating_first(_: Function) -> Function:
    return lambda endpoint: (endpoint.terminating,)


def _only_reported_ready(item: api.Endpoint, endpoint: snapshot.EndpointInfo) -> snapshot.EndpointInfo:
    reported = item.conditions is not None and item.conditions.ready is True
    return msgspec.structs.replace(endpoint, ready=reported)


def _lingering_is_ready(_: api.Endpoint, endpoint: snapshot.EndpointInfo) -> snapshot.EndpointInfo:
    lingers = endpoint.serving and endpoint.terminating
    return msgspec.structs.replace(endpoint, ready=endpoint.ready or lingers)


def _swapped(service: snapshot.ServiceInfo) -> snapshot.ServiceInfo:
    return msgspec.structs.replace(
        service, internal_policy=service.external_policy, external_policy=service.internal_policy
    )


def _cut(ranges: Iterable[Any] | None) -> tuple[Any, ...] | None:
    return tuple(ranges)[:1] if ranges else None


def _each_slice_by_itself(merge: Function) -> Function:
    """Wrap that concatenates the endpoints of slices instead of merging them."""

    def put_together(slices: Iterable[Any], wanted: Any, *of: Any) -> Merged:  # noqa: ANN401
        found: list[Merged] = [merge([one], wanted, *of) for one in slices]
        return {key: tuple(endpoint for part in found for endpoint in part[key]) for key in wanted}

    return put_together


SLICES = (
    mutant(
        "slices.first-only",
        "Of a Service's slices only the first is read.",
        Patch("kproxy.proxy.snapshot.services:merge_endpoints", _first_slice_only),
        clauses="slices.merged",
    ),
    mutant(
        "slices.duplicates-doubled",
        "An endpoint listed twice counts twice.",
        Patch("kproxy.proxy.snapshot.services:merge_endpoints", _each_slice_by_itself),
        clauses="balancing.even",
    ),
    mutant(
        "slices.live-does-not-win",
        "Of two entries for one address the terminating one counts.",
        Patch("kproxy.proxy.snapshot.endpoints:_rank", _terminating_first),
        clauses="slices.address-reused.live-endpoint-wins",
    ),
    mutant(
        "slices.one-target-port",
        "All endpoints are asked on the port of the first.",
        _merging(_on_the_port_of_the_first),
        clauses="slices.target-port.per-endpoint",
    ),
    mutant(
        "slices.headless-label-ignored",
        "Slices with the headless label are used.",
        Patch("kproxy.proxy.snapshot.incremental:owner_of", _without_label(api.HEADLESS_LABEL)),
        _asking_for_all("ENDPOINT_SLICES"),
        clauses="slices.headless-label.ignored",
    ),
)

READINESS = (
    mutant(
        "endpoints.unready-used",
        "Endpoints that are not ready are used like others.",
        _endpoints(lambda _, endpoint: msgspec.structs.replace(endpoint, ready=True)),
        clauses="endpoints.ready-only endpoints.not-serving.never-used",
    ),
    mutant(
        "endpoints.terminating-beside-ready",
        "Terminating endpoints that still serve are used beside ready ones.",
        _endpoints(_lingering_is_ready),
        clauses="endpoints.terminating.not-used-beside-ready",
    ),
    mutant(
        "endpoints.missing-condition-unready",
        "An endpoint without a ready condition is taken for unready.",
        _endpoints(_only_reported_ready),
        clauses="endpoints.conditions.missing-means-ready",
    ),
)

SERVICES = (
    mutant(
        "services.lost-port",
        "Of a Service's ports only the first is served.",
        Patch("kproxy.proxy.snapshot.services:_wanted_ports", _first_port_only),
        clauses="change.port-added.served protocol.same-number.independent",
    ),
    mutant(
        "services.proxy-name-ignored",
        "Services of another proxy are served.",
        Patch("kproxy.proxy.snapshot.services:_is_proxied", _without_label(api.PROXY_NAME_LABEL)),
        _asking_for_all("SERVICES"),
        clauses="objects.proxy-name-label.untouched",
    ),
    mutant(
        "services.ip-mode-ignored",
        "Load balancer IPs of mode Proxy are captured.",
        Patch("kproxy.proxy.snapshot.services:_load_balancer_ips", _any_mode),
        clauses="load-balancer.ip-mode-proxy.untouched",
    ),
    mutant(
        "services.first-range-only",
        "Of several source ranges only the first counts.",
        _services(
            lambda service: msgspec.structs.replace(service, source_ranges=_cut(service.source_ranges))
        ),
        clauses="source-ranges.inside-allowed",
    ),
    mutant(
        "policy.internal-ignored",
        "internalTrafficPolicy Local is not obeyed.",
        _services(lambda service: msgspec.structs.replace(service, internal_policy=TrafficPolicy.CLUSTER)),
        clauses="internal-policy.local.same-node internal-policy.local.drop-without-local-endpoint",
    ),
    mutant(
        "policy.external-ignored",
        "externalTrafficPolicy Local is not obeyed.",
        _services(lambda service: msgspec.structs.replace(service, external_policy=TrafficPolicy.CLUSTER)),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    mutant(
        "policy.swapped",
        "Each traffic policy binds the addresses of the other.",
        _services(_swapped),
        clauses="internal-policy.external-addresses-exempt external-policy.cluster-ip-exempt",
    ),
    mutant(
        "source-ranges.first-fifty",
        "Of a Service's source ranges the first fifty count.",
        Patch("kproxy.proxy.snapshot.services:_source_ranges", _fifty),
        clauses="source-ranges.inside-allowed",
    ),
    mutant(
        "slices.first-hundred",
        "Of a Service's endpoints the first hundred count.",
        Patch("kproxy.proxy.snapshot.services:merge_endpoints", _at_most(100)),
        clauses="balancing.any-number-of-endpoints",
    ),
    mutant(
        "slices.first-thousand",
        "Of a Service's endpoints the first thousand count.",
        Patch("kproxy.proxy.snapshot.services:merge_endpoints", _at_most(1000)),
        clauses="balancing.any-number-of-endpoints",
    ),
    mutant(
        "affinity.ignored",
        "Session affinity is not obeyed.",
        _services(lambda service: msgspec.structs.replace(service, affinity_seconds=None)),
        clauses="affinity.client-ip.sticks",
        needs_kernel=True,
    ),
)

MUTANTS = (*SLICES, *READINESS, *SERVICES)
