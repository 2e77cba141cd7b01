"""Mutants of ipvs mode's own state: kernel settings, foreign virtual servers, drift and the order of steps."""

from __future__ import annotations

from dataclasses import replace

from kproxy.proxy.backends.ipvs import names as ipvs_names
from kproxy.proxy.backends.xtables.rules import TableName
from tests.mutants.mutant import Function, Patch, Unseen, answering, in_ipvs
from tests.mutants.patches.ipvs import APPLIER, MACHINE, left_out_of_chain, without_setting

IN_GUEST = "tests/uml/guest/ipvs_kernel.py"
DIFF = "kproxy.proxy.backends.ipvs.diff:"
STEP_BY_STEP = "a case probes when all is done"
DIFF_TESTS = "tests/unit/proxy/backends/ipvs/test_diff.py"


def _all_first(sort: Function) -> Function:
    """Admissions are added as early as guards."""

    def sorted_members(*of: object) -> object:
        found = sort(*of)
        return replace(found, added_first=(*found.added_first, *found.added_last), added_last=())

    return sorted_members


def _guards_last(sort: Function) -> Function:
    """Guards are added as late as admissions."""

    def sorted_members(*of: object) -> object:
        found = sort(*of)
        return replace(found, added_first=(), added_last=(*found.added_first, *found.added_last))

    return sorted_members


def _goes_on_being_let_in(sort: Function) -> Function:
    """Admissions that end are removed last."""

    def sorted_members(*of: object) -> object:
        found = sort(*of)
        last = (*found.revoked, *found.removed_last)
        return replace(found, let_in_no_more=(), removed_last=last)

    return sorted_members


MUTANTS = (
    in_ipvs(
        "ipvs.set.health-check-node-port",
        "Health check node ports are not let in.",
        left_out_of_chain(TableName.FILTER, ipvs_names.NODE_PORT),
        unseen=Unseen(
            "the lab's nodes let everything in",
            f"{IN_GUEST}::test_a_health_check_node_port_is_let_in_though_the_firewall_drops",
        ),
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.settings.conntrack",
        "IPVS's connections have no connection tracking.",
        without_setting("net/ipv4/vs/conntrack"),
        unseen=Unseen(
            "no proxy without it is ever seen to have applied a change", f"{IN_GUEST}::test_kernel_settings"
        ),
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.settings.strict-arp",
        "strictARP changes nothing.",
        Patch(f"{MACHINE}_STRICT_ARP", lambda _: {}),
        unseen=Unseen(
            "no machine of the lab sends ARP requests for a Service's address",
            f"{IN_GUEST}::test_kernel_settings",
        ),
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.exclude",
        "Virtual servers inside excludeCIDRs are taken for ours.",
        Patch(f"{APPLIER}Ownership.__init__", lambda init: lambda self, *of: init(self, *of[:-1], ())),
        unseen=Unseen(
            "a virtual server that no proxy made belongs to no Service",
            f"{IN_GUEST}::test_a_restarted_proxy_takes_over_what_the_last_one_left_"
            "and_spares_what_is_not_a_proxys",
        ),
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.foreign",
        "All virtual servers are taken for ours.",
        Patch(f"{APPLIER}Ownership.has", answering(value=True)),
        unseen=Unseen(
            "a virtual server that no proxy made belongs to no Service",
            f"{IN_GUEST}::test_a_restarted_proxy_takes_over_what_the_last_one_left_"
            "and_spares_what_is_not_a_proxys",
        ),
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.look",
        "A look at the kernel finds nothing amiss.",
        Patch(f"{APPLIER}IpvsKernel.find_drift", answering(())),
        unseen=Unseen(
            "no case harms the kernel's virtual servers",
            f"{IN_GUEST}::test_a_look_finds_virtual_servers_and_destinations_that_are_gone_or_changed",
        ),
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.order.let-in-first",
        "A Service is let in before it is served.",
        Patch(f"{DIFF}_sorted_members", _all_first),
        unseen=Unseen(STEP_BY_STEP, f"{DIFF_TESTS}::test_a_new_service_is_guarded_first_and_reachable_last"),
    ),
    in_ipvs(
        "ipvs.order.guarded-last",
        "A Service is served before it is guarded.",
        Patch(f"{DIFF}_sorted_members", _guards_last),
        unseen=Unseen(STEP_BY_STEP, f"{DIFF_TESTS}::test_a_new_service_is_guarded_first_and_reachable_last"),
    ),
    in_ipvs(
        "ipvs.order.goes-unguarded",
        "A Service that goes is let in when it is served no more.",
        Patch(f"{DIFF}_sorted_members", _goes_on_being_let_in),
        unseen=Unseen(
            STEP_BY_STEP,
            f"{DIFF_TESTS}::test_a_service_that_goes_is_unreachable_first_and_loses_its_guards_last",
        ),
    ),
)
