"""Mutants of flows that last: connections, and stale and invalid connection tracking entries."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kproxy.linux import host
from kproxy.linux.host import HostError
from kproxy.linux.netfilter.rules import End
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.ipvs import names as ipvs_names
from kproxy.proxy.backends.ipvs.compile import DesiredVirtualServer
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import Plan
from tests.mutants.mutant import Function, Patch, answering, in_ipvs, mutant
from tests.mutants.patches.iptables import FILTER, Rules, left_out
from tests.mutants.patches.ipvs import in_parts, left_out_of_chain

CLEANUP = "kproxy.proxy.daemon.sync.conntrack_cleanup:"


def _chosen_only(_: Function) -> Function:
    def serving(service: Any) -> frozenset[Any]:  # noqa: ANN401
        pools = [pool for f in service.frontends for pool in (f.pool, f.shortcut) if pool is not None]
        return frozenset((e.address, e.port) for pool in pools for e in pool.endpoints)

    return serving


def _by_endpoint(remove: Function) -> Function:
    """With a removed endpoint all its UDP entries are removed, those of other Services too."""

    def removing(self: Any, before: Any, now: Any) -> int:  # noqa: ANN401
        removed: int = remove(self, before, now)
        left = _endpoints(before) - _endpoints(now)
        for address in {address for address, _ in left}:
            with suppress(HostError):
                host.run_tool(("conntrack", "-D", "-p", "udp", "--reply-src", str(address)))
        return removed

    return removing


def _endpoints(frontends: Any) -> set[Any]:  # noqa: ANN401
    places = (*frontends.by_socket.items(), *frontends.by_node_port.items())
    return {(endpoint[0], where) for where, serving in places for endpoint in serving}


def _flushing(remove: Function) -> Function:
    def flushing(self: Any, plan: Plan) -> int:  # noqa: ANN401
        removed: int = remove(self, plan)
        host.run_tool(("conntrack", "-F"))
        return removed

    return flushing


def in_virtuals(changed: Callable[[DesiredVirtualServer], DesiredVirtualServer]) -> Patch:
    """Patch that changes every virtual server."""
    return in_parts(lambda part: replace(part, virtuals={k: changed(v) for k, v in part.virtuals.items()}))


MUTANTS = (
    mutant(
        "guard.invalid",
        "Packets that conntrack calls INVALID are forwarded untranslated.",
        *left_out(Rules(chain=names.FORWARD, target=End.DROP, table=FILTER)),
        clauses="conntrack.invalid-not-leaked",
        needs_kernel=True,
    ),
    mutant(
        "guard.invalid-to-the-node",
        "Packets that conntrack calls INVALID reach the node's own processes untranslated.",
        *left_out(Rules(chain=names.NODE_PORTS, target=End.DROP, table=FILTER)),
        clauses="conntrack.invalid-not-leaked",
        needs_kernel=True,
    ),
    mutant(
        "conntrack.left",
        "Stale UDP entries stay.",
        Patch(f"{CLEANUP}ConntrackCleaner.remove", answering(0)),
        clauses="conntrack.udp.moves-off-removed-endpoint conntrack.udp.moves-off-old-target-port "
        "conntrack.udp.served-after-first-endpoint",
        needs_kernel=True,
    ),
    mutant(
        "conntrack.untranslated-left",
        "UDP entries from before the first endpoint stay.",
        Patch(f"{CLEANUP}is_stale", lambda stale: lambda flow, *of: flow.is_dnat and stale(flow, *of)),
        clauses="conntrack.udp.served-after-first-endpoint",
        needs_kernel=True,
    ),
    mutant(
        "conntrack.of-deleted-left",
        "UDP entries of deleted Services stay.",
        Patch(f"{CLEANUP}is_stale", lambda stale: lambda flow, _before, now: stale(flow, now, now)),
        clauses="conntrack.udp.not-to-endpoint-of-deleted-service",
        needs_kernel=True,
    ),
    mutant(
        "conntrack.of-emptied-left",
        "UDP entries of Services without endpoints stay.",
        Patch(
            f"{CLEANUP}is_stale",
            lambda stale: (
                lambda flow, before, now: (
                    now.serving(flow.destination) != frozenset() and stale(flow, before, now)
                )
            ),
        ),
        clauses="conntrack.udp.not-to-dead-endpoint-when-none-left",
        needs_kernel=True,
    ),
    mutant(
        "conntrack.serving-removed",
        "UDP entries to endpoints that still serve but are not chosen go.",
        Patch(f"{CLEANUP}_serving", _chosen_only),
        clauses="conntrack.udp.stays-with-serving-terminating-endpoint conntrack.udp.stays-on-policy-change",
        needs_kernel=True,
    ),
    mutant(
        "conntrack.by-endpoint",
        "With an endpoint that leaves a Service go all UDP entries to it, also those of others.",
        Patch(f"{CLEANUP}ConntrackCleaner._remove", _by_endpoint),
        clauses="conntrack.unrelated.untouched",
        needs_kernel=True,
    ),
    mutant(
        "conntrack.node-ports-everywhere",
        "UDP entries to the number of a node port are the Service's, whatever their address.",
        Patch(f"{CLEANUP}UdpFrontends._accepts_node_ports", answering(value=True)),
        clauses="conntrack.unrelated.untouched",
        needs_kernel=True,
    ),
    mutant(
        "conntrack.flushed",
        "Each change costs every connection its entry.",
        Patch(f"{CLEANUP}ConntrackCleaner.remove", _flushing),
        clauses="established.survives-endpoint-change established.survives-policy-change",
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.invalid",
        "Segments outside the window reach the node's own processes.",
        left_out_of_chain(TableName.FILTER, ipvs_names.PROXY_FIREWALL, End.DROP),
        clauses="conntrack.invalid-not-leaked",
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.graceful.drains",
        "An endpoint that leaves takes its connections with it.",
        in_virtuals(lambda virtual: replace(virtual, drain=False)),
        clauses="established.survives-removal-of-its-endpoint established.survives-termination-of-its-endpoint",
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.graceful.lingers",
        "A UDP flow is cut when its endpoint terminates, though it serves.",
        in_virtuals(lambda virtual: replace(virtual, keep_established=frozenset())),
        clauses="conntrack.udp.stays-with-serving-terminating-endpoint",
        needs_kernel=True,
    ),
)
