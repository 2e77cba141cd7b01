"""Mutants of ipvs mode: virtual servers, their destinations and addresses, settings of the kernel, and the order of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kproxy.linux.node_addresses import AddressMonitor
from kproxy.model.network import Family
from kproxy.proxy.backends.ipvs.compile import DesiredVirtualServer
from kproxy.proxy.backends.ipvs.diff import IpvsCommand, SetDestination
from kproxy.proxy.backends.ipvs.rules import Server
from tests.mutants.ipvs import IN_GUEST, in_ipvs, in_parts, on_kernel
from tests.mutants.mutant import Function, Patch, Unseen, answering, instead

COMPILE = "kproxy.proxy.backends.ipvs.compile:"
DIFF = "kproxy.proxy.backends.ipvs.diff:"
PROGRAMMER = "kproxy.proxy.backends.ipvs.kernel.applier:"
MACHINE = "kproxy.proxy.backends.ipvs.kernel.machine:"


def in_virtuals(changed: Callable[[DesiredVirtualServer], DesiredVirtualServer]) -> Patch:
    """Patch that changes every virtual server."""
    return in_parts(lambda part: replace(part, virtuals={k: changed(v) for k, v in part.virtuals.items()}))


def _of_every_device(family: Family) -> AddressMonitor:
    return AddressMonitor(family, "none")


def _weights_left_at_zero(grown: Function) -> Function:
    def only_new(planned: object) -> Iterator[IpvsCommand]:
        yield from (o for o in grown(planned) if not isinstance(o, SetDestination) or o.new)

    return only_new


def without_setting(name: str) -> Patch:
    """Patch that leaves a sysctl unset."""
    return Patch(f"{MACHINE}_SETTINGS", lambda settings: {k: v for k, v in settings.items() if k != name})


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


SERVERS = (
    in_ipvs(
        "ipvs.node-ports",
        "There are no virtual servers of node ports.",
        Patch(
            f"{COMPILE}_frontend_addresses",
            lambda requested: (
                lambda frontend, context: (frontend.address and requested(frontend, context)) or ()
            ),
        ),
        clauses="node-port.reaches-ready-endpoint",
    ),
    in_ipvs(
        "ipvs.addresses",
        "Service addresses are not made the node's own.",
        in_parts(lambda part: replace(part, addresses=frozenset())),
        clauses="cluster-ip.reaches-ready-endpoint external-ip.reaches-ready-endpoint",
    ),
    on_kernel(
        "ipvs.affinity",
        "Virtual servers do not persist.",
        Patch(f"{COMPILE}_address_scheduling", instead(lambda _, context: Server(context.scheduler))),
        clauses="affinity.client-ip.sticks",
    ),
    on_kernel(
        "ipvs.graceful.drains",
        "An endpoint that leaves takes its connections with it.",
        in_virtuals(lambda virtual: replace(virtual, drain=False)),
        clauses="established.survives-removal-of-its-endpoint established.survives-termination-of-its-endpoint",
    ),
    on_kernel(
        "ipvs.graceful.lingers",
        "A UDP flow is cut when its endpoint terminates, though it serves.",
        in_virtuals(lambda virtual: replace(virtual, keep_established=frozenset())),
        clauses="conntrack.udp.stays-with-serving-terminating-endpoint",
    ),
    on_kernel(
        "ipvs.graceful.returns",
        "An endpoint that drains gets nothing new when it returns.",
        Patch("kproxy.proxy.backends.ipvs.diff:_ServerCommands.additions", _weights_left_at_zero),
        clauses="restart.changes-while-down.applied change.endpoint-added.used",
    ),
    on_kernel(
        "ipvs.addresses-left",
        "The addresses of a Service that goes stay the node's own.",
        Patch("kproxy.proxy.backends.ipvs.kernel.device:remove_addresses", answering(None)),
        clauses="change.service-deleted.not-served",
    ),
    on_kernel(
        "ipvs.node-addresses-of-the-start",
        "What comes and goes on other interfaces is not heard of.",
        Patch("kproxy.linux.node_addresses:AddressMonitor._changed", answering(value=False)),
        clauses="node-port.addresses.gained.served",
    ),
    on_kernel(
        "ipvs.device-addresses-are-the-nodes",
        "The addresses of kube-ipvs0 count as addresses of the node.",
        Patch("kproxy.proxy.daemon.startup:monitor_addresses", instead(_of_every_device)),
        clauses="health-check.node-port-addresses.bind",
    ),
    on_kernel(
        "ipvs.node-port-addresses",
        "Node ports are served at every address, whatever is configured.",
        Patch(
            f"{PROGRAMMER}IpvsKernel._context",
            lambda context: (
                lambda kernel, plan: replace(
                    found := context(kernel, plan),
                    node_port_addresses=tuple(a for a in found.node_addresses if not a.is_loopback),
                )
            ),
        ),
        clauses="node-port.addresses.outside-configured.untouched",
    ),
)


SETTINGS = (
    on_kernel(
        "ipvs.settings.conntrack",
        "IPVS's connections have no connection tracking.",
        without_setting("net/ipv4/vs/conntrack"),
        unseen=Unseen(
            "no proxy without it is ever seen to have applied a change", f"{IN_GUEST}::test_kernel_settings"
        ),
    ),
    on_kernel(
        "ipvs.settings.quiescent",
        "A client sticks to an endpoint that is gone.",
        without_setting("net/ipv4/vs/expire_quiescent_template"),
        clauses="affinity.endpoint-gone.moves-at-once",
    ),
    on_kernel(
        "ipvs.settings.strict-arp",
        "strictARP changes nothing.",
        Patch(f"{MACHINE}_STRICT_ARP", lambda _: {}),
        unseen=Unseen("nobody in the lab asks who has an address", f"{IN_GUEST}::test_kernel_settings"),
    ),
    on_kernel(
        "ipvs.exclude",
        "Virtual servers inside excludeCIDRs are taken for ours.",
        Patch(f"{PROGRAMMER}_Ownership.__init__", lambda init: lambda self, *of: init(self, *of[:-1], ())),
        unseen=Unseen(
            "a virtual server that no proxy made is nobody's Service",
            f"{IN_GUEST}::test_a_restarted_proxy_takes_over_what_the_last_one_left_"
            "and_spares_what_is_not_a_proxys",
        ),
    ),
    on_kernel(
        "ipvs.foreign",
        "All virtual servers are taken for ours.",
        Patch(f"{PROGRAMMER}_Ownership.has", answering(value=True)),
        unseen=Unseen(
            "a virtual server that no proxy made is nobody's Service",
            f"{IN_GUEST}::test_a_restarted_proxy_takes_over_what_the_last_one_left_"
            "and_spares_what_is_not_a_proxys",
        ),
    ),
    on_kernel(
        "ipvs.look",
        "A look at the kernel finds nothing amiss.",
        Patch(f"{PROGRAMMER}IpvsKernel.find_drift", answering(())),
        unseen=Unseen(
            "no case harms the kernel's virtual servers",
            f"{IN_GUEST}::test_a_look_finds_virtual_servers_and_destinations_that_are_gone",
        ),
    ),
)

STEP_BY_STEP = "a case asks when all is done"
DIFF_TESTS = "tests/unit/proxy/backends/ipvs/test_diff.py"

ORDER = (
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

MUTANTS = (*SERVERS, *SETTINGS, *ORDER)
