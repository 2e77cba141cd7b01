"""Mutants of the daemon: stale connections, restarts, changes it does not notice.  Only real processes can show them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from kproxy.conformance.testbeds import sentinel
from kproxy.lab import topology
from kproxy.linux import host
from kproxy.linux.host import HostError
from kproxy.model.api import Service
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.xtables.rules import Table
from kproxy.proxy.plan import Plan, PlanSettings
from tests.mutants.mutant import Function, Patch, answering, mutant

needing_kernel = partial(mutant, needs_kernel=True)

STALE = "kproxy.proxy.daemon.sync.conntrack_cleanup:"
BEGIN = "kproxy.proxy.backends.iptables.kernel.applier:IptablesKernel._rewrite"


def _chosen_only(_: Function) -> Function:
    def serving(service: Any) -> frozenset[Any]:  # noqa: ANN401
        pools = [pool for f in service.frontends for pool in (f.pool, f.shortcut) if pool is not None]
        return frozenset((e.address, e.port) for pool in pools for e in pool.endpoints)

    return serving


def _whatever_is_deleted(eligible: Function) -> Function:
    def judged(node: Any) -> bool:  # noqa: ANN401
        if node is None:
            return False
        stays = msgspec.structs.replace(node.metadata, deletion_timestamp=None)
        return bool(eligible(msgspec.structs.replace(node, metadata=stays)))

    return judged


def _not_at_start(remove: Function) -> Function:
    return lambda self, before, now: remove(self, before, now) if before else 0


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


def _from_nothing(begin: Function) -> Function:
    """Rules of an earlier run are removed before the first rules are written."""
    from kproxy.proxy.backends.iptables.kernel.applier import remove_iptables_rules  # noqa: PLC0415

    def beginning(self: Any, *of: Any) -> Any:  # noqa: ANN401
        if self._drift_monitor is None:
            remove_iptables_rules(self.tools)
        return begin(self, *of)

    return beginning


def _anew(apply: Function) -> Function:
    """At every change all rules are removed before new ones are written."""
    from kproxy.proxy.backends.iptables.kernel.applier import remove_iptables_rules  # noqa: PLC0415

    def applying(self: Any, *of: Any) -> Any:  # noqa: ANN401
        remove_iptables_rules(self.tools)
        self.forget()
        return apply(self, *of)

    return applying


def _trusting(begin: Function) -> Function:
    """Rules of an earlier run are taken for the desired ones, except those of the Services that the harness waits for."""
    from kproxy.proxy.backends.iptables.kernel.drift import drift_monitor  # noqa: PLC0415

    def beginning(self: Any, wanted: Any) -> Any:  # noqa: ANN401
        if self._drift_monitor is None and self.tools.has_chain(Table.NAT, names.SERVICES):
            kept = {
                name: f for name, f in wanted.service_rules.items() if name.namespace != sentinel.NAMESPACE
            }
            self._drift_monitor = drift_monitor(self.tools)
            return self._update(replace(wanted, service_rules=kept), wanted)
        return begin(self, wanted)

    return beginning


def _keeping_the_removed(program: Function) -> Function:
    def keeping(plan: Plan, options: Any, previous: Any = None) -> Any:  # noqa: ANN401
        wanted = program(plan, options, previous)
        before = previous.service_rules if previous else {}
        return replace(wanted, service_rules={**before, **wanted.service_rules})

    return keeping


def _deaf_to_deletion(apply_one: Function) -> Function:
    def applying(self: Any, kind: Any, change: Any) -> Any:  # noqa: ANN401
        from kproxy.proxy.daemon.cluster.store import Removed  # noqa: PLC0415

        return not (kind is Service and isinstance(change, Removed)) and apply_one(self, kind, change)

    return applying


def _first_zone(settings_for: Function) -> Function:
    first: list[str] = []

    def settings(*of: Any) -> PlanSettings:  # noqa: ANN401
        found: PlanSettings = settings_for(*of)
        first.append(found.zone)
        return replace(found, zone=first[0])

    return settings


def _zone_of_the_start(settings_for: Function) -> Function:
    first: list[str] = []

    def settings(config: Any, family: Family, name: str, node: Any, *of: Any) -> PlanSettings:  # noqa: ANN401
        found: PlanSettings = settings_for(config, family, name, node, *of)
        if node is not None:
            first.append(found.zone)
        return replace(found, zone="" if found.zone in first[:1] else found.zone)

    return settings


def _pods_of_all_nodes(pod_networks: Function) -> Function:
    everywhere = tuple(topology.CLUSTER_CIDR[family] for family in Family)
    return lambda node: everywhere if pod_networks(node) else ()


CONNTRACK = (
    needing_kernel(
        "conntrack.left",
        "Stale UDP entries stay.",
        Patch(f"{STALE}ConntrackCleaner.remove", answering(0)),
        clauses="conntrack.udp.moves-off-removed-endpoint conntrack.udp.moves-off-old-target-port "
        "conntrack.udp.served-after-first-endpoint",
    ),
    needing_kernel(
        "conntrack.untranslated-left",
        "UDP entries from before the first endpoint stay.",
        Patch(f"{STALE}is_stale", lambda stale: lambda flow, *of: flow.is_dnat and stale(flow, *of)),
        clauses="conntrack.udp.served-after-first-endpoint",
    ),
    needing_kernel(
        "conntrack.of-deleted-left",
        "UDP entries of deleted Services stay.",
        Patch(f"{STALE}is_stale", lambda stale: lambda flow, _before, now: stale(flow, now, now)),
        clauses="conntrack.udp.not-to-endpoint-of-deleted-service",
    ),
    needing_kernel(
        "conntrack.of-emptied-left",
        "UDP entries of Services without endpoints stay.",
        Patch(
            f"{STALE}is_stale",
            lambda stale: (
                lambda flow, before, now: (
                    now.serving(flow.destination) != frozenset() and stale(flow, before, now)
                )
            ),
        ),
        clauses="conntrack.udp.not-to-dead-endpoint-when-none-left",
    ),
    needing_kernel(
        "conntrack.serving-removed",
        "UDP entries to endpoints that still serve but are not chosen go.",
        Patch(f"{STALE}_serving", _chosen_only),
        clauses="conntrack.udp.stays-with-serving-terminating-endpoint conntrack.udp.stays-on-policy-change",
    ),
    needing_kernel(
        "conntrack.by-endpoint",
        "With an endpoint that leaves a Service go all UDP entries to it, also those of others.",
        Patch(f"{STALE}ConntrackCleaner._remove", _by_endpoint),
        clauses="conntrack.unrelated.untouched",
    ),
    needing_kernel(
        "conntrack.node-ports-everywhere",
        "UDP entries to the number of a node port are the Service's, whatever their address.",
        Patch(f"{STALE}UdpFrontends._accepts_node_ports", answering(value=True)),
        clauses="conntrack.unrelated.untouched",
    ),
    needing_kernel(
        "conntrack.flushed",
        "Each change costs every connection its entry.",
        Patch(f"{STALE}ConntrackCleaner.remove", _flushing),
        clauses="established.survives-endpoint-change established.survives-policy-change",
    ),
    needing_kernel(
        "conntrack.not-at-start",
        "UDP entries that went stale while the proxy was down stay.",
        Patch(f"{STALE}ConntrackCleaner._remove", _not_at_start),
        clauses="restart.stale-udp-entries.reconciled",
    ),
)

RESTART = (
    needing_kernel(
        "restart.from-nothing",
        "A proxy that starts removes the rules it finds, then writes its own.",
        Patch(BEGIN, _from_nothing),
        clauses="restart.no-failed-connection",
    ),
    needing_kernel(
        "restart.trusting",
        "A proxy that starts takes the rules it finds for those it wants.",
        Patch(BEGIN, _trusting),
        clauses="restart.changes-while-down.applied",
    ),
    needing_kernel(
        "restart.another-mode-stays",
        "A proxy that starts leaves the rules that another mode has written.",
        Patch("kproxy.proxy.daemon.sync.dataplane:_TakeoverDataplane._clear_now", lambda _: lambda *_: None),
        clauses="restart.mode-change.old-rules-removed",
    ),
)

CHANGES = (
    needing_kernel(
        "changes.from-nothing",
        "At every change all rules are removed, then written.",
        Patch("kproxy.proxy.backends.iptables.kernel.applier:IptablesKernel.apply", _anew),
        clauses="change.rolling-update.no-failed-connection",
    ),
    needing_kernel(
        "changes.deletion-unnoticed",
        "A deleted Service is served on.",
        Patch("kproxy.proxy.daemon.cluster.store:ClusterStore._apply_one", _deaf_to_deletion),
        clauses="change.service-deleted.not-served",
    ),
    needing_kernel(
        "changes.removed-port-kept",
        "A port that is removed from a Service is served on.",
        Patch("kproxy.proxy.backends.iptables.kernel.applier:desired_state", _keeping_the_removed),
        clauses="change.port-removed.not-served",
    ),
    needing_kernel(
        "changes.late",
        "A change waits for ten seconds, as for a resync.",
        Patch(
            "kproxy.proxy.daemon.startup:SyncPeriods",
            lambda pace: lambda **fields: pace(**{**fields, "shortest": 10.0}),
        ),
        clauses="change.in-effect-soon",
    ),
    needing_kernel(
        "changes.zone-unnoticed",
        "The zone that the node had at first counts for ever.",
        Patch("kproxy.proxy.daemon.startup:plan_settings", _first_zone),
        clauses="change.topology.followed",
    ),
    needing_kernel(
        "changes.zone-lost-at-start",
        "The zone that the node has when the proxy starts counts only after another one has.",
        Patch("kproxy.proxy.daemon.startup:plan_settings", _zone_of_the_start),
        clauses="restart.zone-label.followed",
    ),
    needing_kernel(
        "detector.node-cidr-of-all-nodes",
        "In mode NodeCIDR the pods of other nodes count as this node's.",
        Patch("kproxy.proxy.daemon.config.plan_settings:pod_networks", _pods_of_all_nodes),
        clauses="detect-local.node-cidr",
    ),
    needing_kernel(
        "proxy-health.deletion-ignored",
        "That a node's object is being deleted is no reason to send it less.",
        Patch("kproxy.proxy.daemon.http.health:is_eligible", _whatever_is_deleted),
        clauses="proxy-health.leaving-node.told",
    ),
)

MUTANTS = (*CONNTRACK, *RESTART, *CHANGES)
