"""Mutants of changes of objects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kproxy.model.api import Service
from kproxy.proxy.plan import Plan, PlanSettings
from tests.mutants.mutant import Function, Patch, answering, in_ipvs, mutant


def _first_port_only(wanted: Function) -> Function:
    return lambda *of: dict(list(wanted(*of).items())[:1])


def _anew(apply: Function) -> Function:
    """At every change all rules are removed before new ones are written."""
    from kproxy.proxy.backends.iptables.kernel.applier import remove_iptables_rules  # noqa: PLC0415

    def applying(self: Any, *of: Any) -> Any:  # noqa: ANN401
        remove_iptables_rules(self.tools)
        self.forget()
        return apply(self, *of)

    return applying


def _filter_before_nat(_: Function) -> Function:
    """Filter has its refusals of afterwards before nat is written, as in kube-proxy (docs/findings)."""
    from kproxy.proxy.backends.iptables.diff import _FILTER_SHARED, _dispatch  # noqa: PLC0415

    return lambda self, _pairs: _dispatch(self.desired, _FILTER_SHARED)


def _keeping_the_removed(program: Function) -> Function:
    """Ports of deleted Services go: else no sentinel after the first is served, and every case ends unjudged."""

    def keeping(plan: Plan, options: Any, previous: Any = None) -> Any:  # noqa: ANN401
        wanted = program(plan, options, previous)
        services = {(port.namespace, port.name) for port in wanted.service_rules}
        before = previous.service_rules if previous else {}
        kept = {port: rules for port, rules in before.items() if (port.namespace, port.name) in services}
        return replace(wanted, service_rules={**kept, **wanted.service_rules})

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


MUTANTS = (
    mutant(
        "services.lost-port",
        "Of a Service's ports only the first is served.",
        Patch("kproxy.proxy.snapshot.services:_wanted_ports", _first_port_only),
        clauses="change.port-added.served protocol.same-number.independent",
    ),
    mutant(
        "changes.from-nothing",
        "At every change all rules are removed, then written.",
        Patch("kproxy.proxy.backends.iptables.kernel.applier:IptablesKernel.apply", _anew),
        clauses="change.rolling-update.no-failed-connection",
        needs_kernel=True,
    ),
    mutant(
        "changes.refusal-goes-first",
        "The refusal of a Service that gets its first endpoint is removed before it is served.",
        Patch("kproxy.proxy.backends.iptables.diff:Update._filter_during_nat_change", _filter_before_nat),
        clauses="change.half-written.never-met",
        needs_kernel=True,
    ),
    mutant(
        "changes.deletion-unnoticed",
        "A deleted Service is served on.",
        Patch("kproxy.proxy.daemon.cluster.store:ClusterStore._apply_one", _deaf_to_deletion),
        clauses="change.service-deleted.not-served",
        needs_kernel=True,
    ),
    mutant(
        "changes.removed-port-kept",
        "A port that is removed from a Service is served on.",
        Patch("kproxy.proxy.backends.iptables.kernel.applier:desired_state", _keeping_the_removed),
        clauses="change.port-removed.not-served",
        needs_kernel=True,
    ),
    mutant(
        "changes.late",
        "A change waits for ten seconds, as for a resync.",
        Patch(
            "kproxy.proxy.daemon.startup:SyncPeriods",
            lambda pace: lambda **fields: pace(**{**fields, "min_sync_period": 10.0}),
        ),
        clauses="change.in-effect-soon",
        needs_kernel=True,
    ),
    mutant(
        "changes.zone-unnoticed",
        "The zone that the node had at first counts for ever.",
        Patch("kproxy.proxy.daemon.config.plan_settings:plan_settings", _first_zone),
        clauses="change.topology.followed",
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.addresses-left",
        "The addresses of a Service that goes stay the node's own.",
        Patch("kproxy.proxy.backends.ipvs.kernel.device:remove_addresses", answering(None)),
        clauses="change.service-deleted.not-served",
        needs_kernel=True,
    ),
)
