"""Mutants of the choice of endpoints, and of Services without any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kproxy.linux.netfilter.patterns import FieldName
from kproxy.linux.netfilter.rules import End, Jump, Reject
from kproxy.model import api
from kproxy.proxy import snapshot
from kproxy.proxy.backends.iptables import names
from tests.mutants.mutant import Function, Patch, answering, mutant
from tests.mutants.patches.iptables import FILTER, Rules, left_out, with_target
from tests.mutants.patches.objects import Merged, selecting_all, without_label
from tests.mutants.patches.settings import Ends


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


def _first_slice_only(merge: Function) -> Function:
    return lambda slices, *of: merge(tuple(slices)[:1], *of)


def _on_the_port_of_the_first(found: Merged) -> Merged:
    return {
        key: tuple(msgspec.structs.replace(endpoint, port=endpoints[0].port) for endpoint in endpoints)
        for key, endpoints in found.items()
    }


def _terminating_first(_: Function) -> Function:
    return lambda endpoint: (endpoint.terminating,)


def _only_reported_ready(item: api.Endpoint, endpoint: snapshot.EndpointInfo) -> snapshot.EndpointInfo:
    reported = item.conditions is not None and item.conditions.ready is True
    return msgspec.structs.replace(endpoint, ready=reported)


def _lingering_is_ready(_: api.Endpoint, endpoint: snapshot.EndpointInfo) -> snapshot.EndpointInfo:
    lingers = endpoint.serving and endpoint.terminating
    return msgspec.structs.replace(endpoint, ready=endpoint.ready or lingers)


def _nowhere_is_here(local_pool: Function) -> Function:
    """An endpoint without a node name counts as this node's."""

    def pool(endpoints: Ends, node: str) -> Any:  # noqa: ANN401
        return local_pool([msgspec.structs.replace(e, node=e.node or node) for e in endpoints], node)

    return pool


MUTANTS = (
    mutant(
        "no-endpoint.cluster-ip",
        "A cluster IP without endpoints is not refused.",
        *left_out(Rules(chain=names.SERVICES, target=Reject, table=FILTER)),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.external-address",
        "An external IP or load balancer IP without endpoints is not refused.",
        *left_out(
            Rules(
                chain=names.EXTERNAL_SERVICES,
                target=Reject,
                table=FILTER,
                lacking=(FieldName.DESTINATION_TYPE,),
            )
        ),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.node-port",
        "A node port without endpoints is not refused.",
        *left_out(
            Rules(
                chain=names.EXTERNAL_SERVICES,
                target=Reject,
                table=FILTER,
                having=(FieldName.DESTINATION_TYPE,),
            )
        ),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.silence",
        "What has no endpoint is met with silence instead of a refusal.",
        *with_target(Rules(chain="KUBE-", target=Reject, table=FILTER), End.DROP),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.forwarded",
        "Only the node's own packets to a cluster IP without endpoints are refused.",
        *left_out(Rules(chain="FORWARD", target=Jump(names.SERVICES), table=FILTER)),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.own-packets",
        "The node's own packets to a cluster IP without endpoints are not refused.",
        *left_out(Rules(chain="OUTPUT", target=Jump(names.SERVICES), table=FILTER)),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.forwarded-external",
        "Packets to external addresses of other machines are not refused.",
        *left_out(Rules(chain="FORWARD", target=Jump(names.EXTERNAL_SERVICES), table=FILTER)),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "no-endpoint.arriving",
        "Packets to the node itself are not refused.",
        *left_out(Rules(chain="INPUT", target=Jump(names.EXTERNAL_SERVICES), table=FILTER)),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "source-ranges.refusal-inside",
        "Who is inside the ranges of a Service without endpoints gets silence.",
        *left_out(Rules(chain=names.PROXY_FIREWALL, target=End.RETURN, table=FILTER)),
        clauses="endpoints.none.rejected",
    ),
    mutant(
        "slices.first-only",
        "Of a Service's slices only the first is read.",
        Patch("kproxy.proxy.snapshot.services:merge_endpoints", _first_slice_only),
        clauses="slices.merged",
    ),
    mutant(
        "slices.live-does-not-win",
        "Of two entries for one address the terminating one counts.",
        Patch("kproxy.proxy.snapshot.endpoints:_rank", _terminating_first),
        clauses="slices.address-reused.live-endpoint-wins",
    ),
    mutant(
        "slices.one-target-port",
        "All endpoints are sent to on the port of the first.",
        _merging(_on_the_port_of_the_first),
        clauses="slices.target-port.per-endpoint",
    ),
    mutant(
        "slices.headless-label-ignored",
        "Slices with the headless label are used.",
        Patch("kproxy.proxy.snapshot.incremental:owner_of", without_label(api.HEADLESS_LABEL)),
        selecting_all("ENDPOINT_SLICES"),
        clauses="slices.headless-label.ignored",
    ),
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
    mutant(
        "local-policy.nowhere-is-here",
        "An endpoint without a nodeName counts as every node's own.",
        Patch("kproxy.proxy.plan.frontends:local_pool", _nowhere_is_here),
        clauses="slices.endpoint.on-node-by-name",
    ),
    mutant(
        "endpoints.no-terminating-fallback",
        "Terminating endpoints are not used when none is ready.",
        Patch("kproxy.proxy.plan.pools:_is_serving_terminating", answering(False)),
        clauses="endpoints.terminating.used-when-none-ready "
        "endpoints.terminating.used-when-none-ready-on-node",
    ),
)
