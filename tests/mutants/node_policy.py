"""Mutants of the plan of this node (`kproxy.proxy.plan`), as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from kproxy.model.network import Protocol
from kproxy.proxy import snapshot
from kproxy.proxy.plan import (
    Exposure,
    Frontend,
    MasqueradePolicy,
    NodePorts,
    PlanSettings,
    Pool,
    PoolEndpoint,
    PoolScope,
)
from tests.mutants.mutant import Function, Patch, answering, instead, mutant

Ends = Iterable[snapshot.EndpointInfo]


def _every_ready_one(ready: list[snapshot.EndpointInfo], _node: str, _zone: str) -> Any:  # noqa: ANN401
    return ready, None


def _serving_here(service: snapshot.ServiceInfo, node: str) -> int:
    found = (e for port in service.ports for e in port.endpoints if e.node == node and e.serving)
    return len({endpoint.address for endpoint in found})


def _terminating_never(service: snapshot.ServiceInfo, node: str) -> int:
    here = (e for port in service.ports for e in port.endpoints if e.node == node)
    return len({endpoint.address for endpoint in here if endpoint.ready and not endpoint.terminating})


def _ready_anywhere(service: snapshot.ServiceInfo, _node: str) -> int:
    found = (e for port in service.ports for e in port.endpoints if e.ready)
    return len({endpoint.address for endpoint in found})


def _only_hinted(nearest: Function) -> Function:
    """Endpoints hinted for other zones are never used, even if no other endpoint is left."""

    def strict(ready: list[snapshot.EndpointInfo], node: str, zone: str) -> Any:  # noqa: ANN401
        zones = [endpoint for endpoint in ready if endpoint.zones]
        if zones and not any(zone in endpoint.zones for endpoint in zones):
            return [], None
        return nearest(ready, node, zone)

    return strict


def _hints_that_are_there(hinted: Function) -> Function:
    """Hints count although an endpoint without a hint exists."""
    return lambda ready, hints, *of: hinted([e for e in ready if hints(e)] or ready, hints, *of)


def _no_node_hints(hinted: Function) -> Function:
    return lambda ready, hints, here, kind: ([], None) if kind == "node" else hinted(ready, hints, here, kind)


def _unready_hints_count(cluster_pool: Function) -> Function:
    """An endpoint that is not ready and has no hint disables the hints of the others."""

    def pool(endpoints: Ends, *of: Any) -> Any:  # noqa: ANN401
        found = tuple(endpoints)
        if not all(endpoint.zones or endpoint.nodes for endpoint in found):
            bare: dict[str, Any] = {"zones": frozenset(), "nodes": frozenset()}
            found = tuple(msgspec.structs.replace(endpoint, **bare) for endpoint in found)
        return cluster_pool(found, *of)

    return pool


def _falls_back(local_pool: Function) -> Function:
    """A node without an endpoint of its own uses those of other nodes."""

    def pool(endpoints: Ends, node: str) -> Pool:
        found = tuple(endpoints)
        own: Pool = local_pool(found, node)
        others = (PoolEndpoint(e.address, e.port, local=False) for e in found if e.ready)
        return own if own.endpoints else Pool(PoolScope.LOCAL, tuple(others))

    return pool


def _nowhere_is_here(local_pool: Function) -> Function:
    """An endpoint without a node name counts as this node's."""

    def pool(endpoints: Ends, node: str) -> Any:  # noqa: ANN401
        return local_pool([msgspec.structs.replace(e, node=e.node or node) for e in endpoints], node)

    return pool


def _guarded_external_ips(external: Function) -> Function:
    def frontend(port: Any, exposure: Exposure, *of: Any) -> Frontend:  # noqa: ANN401
        found: Frontend = external(port, exposure, *of)
        return (
            msgspec.structs.replace(found, sources=port.service.source_ranges)
            if exposure is Exposure.EXTERNAL_IP
            else found
        )

    return frontend


def _all_means_local_too(external: Function) -> Function:
    def frontend(port: Any, *of: Any) -> Frontend:  # noqa: ANN401
        found: Frontend = external(port, *of)
        return (
            msgspec.structs.replace(found, masquerade=MasqueradePolicy.ALWAYS)
            if port.settings.masquerade_all
            else found
        )

    return frontend


def _local_rewritten(external: Function) -> Function:
    def frontend(*of: Any) -> Frontend:  # noqa: ANN401
        found: Frontend = external(*of)
        return (
            found
            if found.shortcut is None
            else msgspec.structs.replace(found, masquerade=MasqueradePolicy.ALWAYS)
        )

    return frontend


def _local_by_connections(external: Function) -> Function:
    """External policy Local binds TCP, and no other protocol."""

    def frontend(port: Any, *of: Any) -> Frontend:  # noqa: ANN401
        found: Frontend = external(port, *of)
        if port.port.protocol is Protocol.TCP or found.shortcut is None:
            return found
        return msgspec.structs.replace(
            found, pool=found.shortcut, shortcut=None, masquerade=MasqueradePolicy.ALWAYS
        )

    return frontend


def _barred_from_itself(external: Function) -> Function:
    return lambda *of: msgspec.structs.replace(external(*of), admit_self=False)


def _local_by_node_ports(external: Function) -> Function:
    """External policy Local binds Services that have node ports, and no others."""

    def frontend(port: Any, *of: Any) -> Frontend:  # noqa: ANN401
        found: Frontend = external(port, *of)
        if port.port.node_port is not None or found.shortcut is None:
            return found
        return msgspec.structs.replace(
            found, pool=found.shortcut, shortcut=None, masquerade=MasqueradePolicy.ALWAYS
        )

    return frontend


def _with(**settings: Any) -> Any:  # noqa: ANN401
    """A wrap for a function whose last parameter is the settings, some of which are others."""

    def wrap(function: Function) -> Function:
        def deaf(*of: Any) -> Any:  # noqa: ANN401
            *others, own = of
            assert isinstance(own, PlanSettings)
            return function(*others, replace(own, **settings))

        return deaf

    return wrap


def _of_the_start(node_ports: Function) -> Function:
    """Node ports on all addresses are served on those of the start only."""
    first: dict[object, Any] = {}

    def known(settings: PlanSettings) -> NodePorts:
        there = first.setdefault((settings.node, settings.family), settings.node_addresses)
        found: NodePorts = node_ports(settings)
        listed = tuple(a for a in there if not a.is_loopback) if found.addresses is None else found.addresses
        return NodePorts(addresses=listed, localhost=found.localhost)

    return known


def _everywhere(node_ports: Function) -> Function:
    return lambda settings: NodePorts(addresses=None, localhost=node_ports(settings).localhost)


TOPOLOGY = (
    mutant(
        "topology.hints-ignored",
        "Hints are not followed.",
        Patch("kproxy.proxy.plan.pools:_closest", instead(_every_ready_one)),
        clauses="topology.same-zone topology.same-node",
    ),
    mutant(
        "topology.node-hints-ignored",
        "Hints for nodes are not followed.",
        Patch("kproxy.proxy.plan.pools:_hinted", _no_node_hints),
        clauses="topology.same-node",
    ),
    mutant(
        "topology.missing-hint-tolerated",
        "Hints are followed though an endpoint has none.",
        Patch("kproxy.proxy.plan.pools:_hinted", _hints_that_are_there),
        clauses="topology.missing-hint.all-endpoints",
    ),
    mutant(
        "topology.unready-hints-count",
        "An endpoint that is not ready and has no hint makes the others' void.",
        Patch("kproxy.proxy.plan.frontends:cluster_pool", _unready_hints_count),
        clauses="topology.unready-hints-ignored",
    ),
    mutant(
        "topology.no-match-nobody",
        "Where no hint names the zone nobody answers.",
        Patch("kproxy.proxy.plan.pools:_closest", _only_hinted),
        clauses="topology.no-match.all-endpoints",
    ),
)

LOCAL = (
    mutant(
        "local-policy.falls-back",
        "Under policy Local a node without endpoints uses those of others.",
        Patch("kproxy.proxy.plan.frontends:local_pool", _falls_back),
        clauses="internal-policy.local.drop-without-local-endpoint "
        "external-policy.local.drop-without-local-endpoint",
    ),
    mutant(
        "local-policy.rewritten",
        "Under external policy Local clients are masqueraded.",
        Patch("kproxy.proxy.plan.frontends:_Port._external", _local_rewritten),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    mutant(
        "local-policy.of-connections",
        "External policy Local binds connections, and no datagrams.",
        Patch("kproxy.proxy.plan.frontends:_Port._external", _local_by_connections),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    mutant(
        "local-policy.of-node-ports",
        "External policy Local binds those Services only that have node ports.",
        Patch("kproxy.proxy.plan.frontends:_Port._external", _local_by_node_ports),
        clauses="external-policy.local.local-endpoints-source-preserved",
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

CONFIGURATION = (
    mutant(
        "configuration.masquerade-all-ignored",
        "masqueradeAll is not obeyed.",
        Patch("kproxy.proxy.plan.frontends:masquerade_of_cluster_ips", _with(masquerade_all=False)),
        Patch("kproxy.proxy.plan.planner:masquerade_of_cluster_ips", _with(masquerade_all=False)),
        clauses="masquerade.all.cluster-ip-rewritten",
    ),
    mutant(
        "configuration.masquerade-all-local-too",
        "masqueradeAll hides clients from Services of external policy Local.",
        Patch("kproxy.proxy.plan.frontends:_Port._external", _all_means_local_too),
        clauses="masquerade.all.external-local-exempt",
    ),
    mutant(
        "configuration.node-port-addresses-ignored",
        "Node ports are served on all addresses.",
        Patch("kproxy.proxy.plan.planner:node_ports", _everywhere),
        clauses="node-port.addresses.outside-configured.untouched node-port.addresses.not-primary.untouched",
    ),
    mutant(
        "configuration.node-port-addresses-of-the-start",
        "Where all addresses serve node ports, those that come later do not.",
        Patch("kproxy.proxy.plan.planner:node_ports", _of_the_start),
        clauses="node-port.addresses.gained.served",
    ),
    mutant(
        "configuration.masquerade-bit-ignored",
        "The mark's bit is 14, whatever is configured.",
        Patch(
            "kproxy.proxy.backends.iptables.kernel:machine_options",
            lambda options: lambda tools, _bit: options(tools, 14),
        ),
        clauses="restart.masquerade-bit.followed",
        needs_kernel=True,
    ),
    mutant(
        "services.no-sctp",
        "Ports of SCTP are left out.",
        Patch(
            "kproxy.proxy.snapshot.services:PROTOCOLS",
            lambda known: {name: number for name, number in known.items() if name != "SCTP"},
        ),
        clauses="protocol.sctp.without-sockets.served",
    ),
    mutant(
        "configuration.localhost-on",
        "Loopback addresses serve node ports though they must not.",
        Patch("kproxy.proxy.plan.planner:node_ports", _with(localhost_node_ports=True)),
        clauses="node-port.localhost.disabled.untouched",
    ),
    mutant(
        "configuration.localhost-off",
        "Loopback addresses serve no node ports though they must.",
        Patch("kproxy.proxy.plan.planner:node_ports", _with(localhost_node_ports=False)),
        clauses="node-port.localhost.enabled.served",
    ),
    mutant(
        "configuration.external-ips-gate-ignored",
        "External IPs are served though the gate says no.",
        Patch("kproxy.proxy.plan.planner:plan_service", _with(allow_external_ips=True)),
        clauses="external-ip.disabled.untouched",
    ),
    mutant(
        "source-ranges.own-address-barred",
        "A node that sends to a load balancer IP of its own is judged by that address alone.",
        Patch("kproxy.proxy.plan.frontends:_Port._external", _barred_from_itself),
        clauses="source-ranges.node-with-vip-as-source.allowed",
        needs_kernel=True,
    ),
    mutant(
        "source-ranges.external-ips-too",
        "Source ranges bind external IPs.",
        Patch("kproxy.proxy.plan.frontends:_Port._external", _guarded_external_ips),
        clauses="source-ranges.external-ip-exempt",
    ),
)

HEALTH = (
    mutant(
        "health-check.terminating-count",
        "Terminating endpoints that serve still count for load balancers.",
        Patch("kproxy.proxy.plan.health_checks:_local_ready", instead(_serving_here)),
        clauses="health-check.local-endpoints.told",
        needs_kernel=True,
    ),
    mutant(
        "health-check.terminating-never-count",
        "An endpoint that is called ready while it terminates does not count for load balancers.",
        Patch("kproxy.proxy.plan.health_checks:_local_ready", instead(_terminating_never)),
        clauses="health-check.ready-flag-trusted",
        needs_kernel=True,
    ),
    mutant(
        "health-check.of-all-nodes",
        "A node tells load balancers of other nodes' endpoints too.",
        Patch("kproxy.proxy.plan.health_checks:_local_ready", instead(_ready_anywhere)),
        clauses="health-check.local-endpoints.told",
        needs_kernel=True,
    ),
)

MUTANTS = (*TOPOLOGY, *LOCAL, *CONFIGURATION, *HEALTH)
