"""Patches of ipvs mode: rules of a chain, objects of service ports, members of sets, and settings of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kproxy.linux.netfilter.rules import InSet, Rule, Step
from kproxy.model.network import Family
from kproxy.proxy.backends.ipvs.compile import IpvsObjects
from kproxy.proxy.backends.ipvs.names import IpSet, set_name
from kproxy.proxy.backends.ipvs.rules import Chains
from kproxy.proxy.backends.xtables.rules import TableName
from tests.mutants.mutant import Function, Patch
from tests.mutants.patches.iptables import Kind, kind_of

APPLIER = "kproxy.proxy.backends.ipvs.kernel.applier:"
MACHINE = "kproxy.proxy.backends.ipvs.kernel.machine:"


def left_out_of_chain(
    table: TableName,
    chain: str,
    target: Step | type[Step] | None = None,
    of: IpSet | None = None,
    having: Kind | tuple[Kind, ...] = (),
) -> Patch:
    """Rules of a chain that are not written: those with this target, a match of this set, and such a match."""

    names = {set_name(of, family) for family in Family} if of is not None else set()
    kinds = set(having if isinstance(having, tuple) else (having,))

    def goes(rule: Rule) -> bool:
        *matches, last = rule.steps
        fits = isinstance(last, target) if isinstance(target, type) else target is None or last == target
        matched = of is None or any(isinstance(match, InSet) and match.name in names for match in matches)
        return fits and matched and (not kinds or not kinds.isdisjoint(map(kind_of, matches)))

    def wrap(chains: Function) -> Function:
        def edited(*of_writer: object) -> Chains:
            written: Chains = chains(*of_writer)
            kept = tuple(rule for rule in written[table][chain] if not goes(rule))
            return {**written, table: {**written[table], chain: kept}}

        return edited

    return Patch("kproxy.proxy.backends.ipvs.static_rules:_ChainBuilder.chains", wrap)


def in_parts(changed: Callable[[IpvsObjects], IpvsObjects]) -> Patch:
    """Patch that changes the objects of every service port."""
    return Patch(
        "kproxy.proxy.backends.ipvs.desired_state:ipvs_objects", lambda part: lambda *of: changed(part(*of))
    )


def without_members(*sets: IpSet) -> Patch:
    """Patch that adds no member to these sets."""
    return in_parts(
        lambda part: replace(part, members=frozenset(m for m in part.members if m.set not in sets))
    )


def without_setting(name: str) -> Patch:
    """Patch that leaves a sysctl unset."""
    return Patch(f"{MACHINE}_SETTINGS", lambda settings: {k: v for k, v in settings.items() if k != name})
