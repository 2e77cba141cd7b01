"""Mutants of start, stop and changed configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kproxy.conformance.testbeds import sentinel
from kproxy.model.api import Service
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.ipvs.diff import IpvsCommand, SetDestination
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import PlanSettings
from tests.mutants.mutant import Function, Patch, in_ipvs, instead, mutant

BEGIN = "kproxy.proxy.backends.iptables.kernel.applier:IptablesKernel._rewrite"


def _not_at_start(remove: Function) -> Function:
    return lambda self, before, now: remove(self, before, now) if before else 0


def _from_nothing(begin: Function) -> Function:
    """Rules of an earlier run are removed before the first rules are written."""
    from kproxy.proxy.backends.iptables.kernel.applier import remove_iptables_rules  # noqa: PLC0415

    def beginning(self: Any, *of: Any) -> Any:  # noqa: ANN401
        if self._drift_monitor is None:
            remove_iptables_rules(self.tools)
        return begin(self, *of)

    return beginning


def _trusting(begin: Function) -> Function:
    """Rules of an earlier run are taken for the desired ones, except those of the Services that the harness waits for."""
    from kproxy.proxy.backends.iptables.kernel.drift import drift_monitor  # noqa: PLC0415

    def beginning(self: Any, wanted: Any) -> Any:  # noqa: ANN401
        if self._drift_monitor is None and self.tools.has_chain(TableName.NAT, names.SERVICES):
            kept = {
                name: f for name, f in wanted.service_rules.items() if name.namespace != sentinel.NAMESPACE
            }
            self._drift_monitor = drift_monitor(self.tools, self._read_state)
            return self._update(replace(wanted, service_rules=kept), wanted)
        return begin(self, wanted)

    return beginning


def _zone_of_the_start(settings_for: Function) -> Function:
    first: list[str] = []

    def settings(config: Any, family: Family, name: str, node: Any, *of: Any) -> PlanSettings:  # noqa: ANN401
        found: PlanSettings = settings_for(config, family, name, node, *of)
        if node is not None:
            first.append(found.zone)
        return replace(found, zone="" if found.zone in first[:1] else found.zone)

    return settings


def _for_services_only(self: Any) -> None:  # noqa: ANN401
    feed = self.progress.subscription
    while True:
        seen = feed.pending
        if self.store.listed(Service):
            break
        feed.wait(seen, None)
    feed.activate(self.clock())


def _weights_left_at_zero(grown: Function) -> Function:
    def only_new(planned: object) -> Iterator[IpvsCommand]:
        yield from (o for o in grown(planned) if not isinstance(o, SetDestination) or o.new)

    return only_new


MUTANTS = (
    mutant(
        "configuration.masquerade-bit-ignored",
        "The mark's bit is 14, whatever is configured.",
        Patch(
            "kproxy.proxy.backends.iptables.kernel.dataplane:machine_options",
            lambda options: lambda tools, _bit: options(tools, 14),
        ),
        clauses="restart.masquerade-bit.followed",
        needs_kernel=True,
    ),
    mutant(
        "conntrack.not-at-start",
        "UDP entries that went stale while the proxy was down stay.",
        Patch("kproxy.proxy.daemon.sync.conntrack_cleanup:ConntrackCleaner._remove", _not_at_start),
        clauses="restart.stale-udp-entries.reconciled",
        needs_kernel=True,
    ),
    mutant(
        "restart.from-nothing",
        "A proxy that starts removes the rules it finds, then writes its own.",
        Patch(BEGIN, _from_nothing),
        clauses="restart.no-failed-connection",
        needs_kernel=True,
    ),
    mutant(
        "restart.trusting",
        "A proxy that starts takes the rules it finds for those it wants.",
        Patch(BEGIN, _trusting),
        clauses="restart.changes-while-down.applied",
        needs_kernel=True,
    ),
    mutant(
        "restart.another-mode-stays",
        "A proxy that starts leaves the rules that another mode has written.",
        Patch("kproxy.proxy.daemon.sync.dataplane:_TakeoverDataplane._clear", lambda _: lambda *_: False),
        clauses="restart.mode-change.old-rules-removed",
        needs_kernel=True,
    ),
    mutant(
        "changes.zone-lost-at-start",
        "The zone that the node has when the proxy starts counts only after another one has.",
        Patch("kproxy.proxy.daemon.config.plan_settings:plan_settings", _zone_of_the_start),
        clauses="restart.zone-label.followed",
        needs_kernel=True,
    ),
    mutant(
        "trouble.services-suffice",
        "A proxy that starts writes rules as soon as Services are listed.",
        Patch("kproxy.proxy.daemon.sync.family_sync:FamilySync.wait_for_lists", instead(_for_services_only)),
        clauses="restart.lists-incomplete.rules-kept",
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.graceful.returns",
        "An endpoint that drains gets nothing new when it returns.",
        Patch("kproxy.proxy.backends.ipvs.diff:_ServerCommands.additions", _weights_left_at_zero),
        clauses="restart.changes-while-down.applied change.endpoint-added.used",
        needs_kernel=True,
    ),
)
