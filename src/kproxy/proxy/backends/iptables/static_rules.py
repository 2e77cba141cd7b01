"""Rules that do not depend on Services: hooks of the builtin chains, masquerade, forwarding.

Positions and conditions are kube-proxy's (behaviours ``ipt.chains.filter``, ``ipt.chains.nat``).  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kproxy.model.network import Protocol
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.iptables.compile import LOOPBACK_IPV4, localhost_node_ports, node_port_destinations
from kproxy.proxy.backends.xtables.rules import (
    Accept,
    Chain,
    Conntrack,
    ConntrackStatus,
    Counted,
    Destination,
    Drop,
    GoesOn,
    Hook,
    InInterface,
    Jump,
    Mark,
    Masquerade,
    OrMark,
    PacketCounter,
    Return,
    Rule,
    Source,
    Table,
    Transport,
    XorMark,
)

if TYPE_CHECKING:
    from kproxy.proxy.backends.iptables.compile import Context
    from kproxy.proxy.backends.xtables.rules import Match

_NEW = (Conntrack((ConntrackStatus.NEW,)),)
_LAST = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the static rules, from the proxy's configuration and this machine.

    ``masquerade_mark`` is one bit (``masquerade.foreign-mark-bits.kept``).  ``random_fully``: this iptables supports the
    option (``masquerade.source-ports.redrawn``).  ``drop_invalid`` is False where the sysctl
    ``nf_conntrack_tcp_be_liberal`` is set (``conntrack.invalid-not-leaked``).  ``drop_invalid_input``: drop invalid TCP
    segments without FIN and RST from other hosts to the node's own processes too
    (https://github.com/kubernetes/kubernetes/issues/117924); False also where ``nf_conntrack_tcp_loose`` is 0, for then
    every connection older than its tracking is invalid.  ``health_check_ports``: node ports to accept under any policy of
    INPUT.  ``counters``: those that the kernel has.
    """

    masquerade_mark: int = 0x4000
    random_fully: bool = True
    drop_invalid: bool = True
    drop_invalid_input: bool = True
    health_check_ports: tuple[int, ...] = ()
    counters: frozenset[PacketCounter] = frozenset()


@dataclass(frozen=True, slots=True)
class HookRules:
    """The rules we keep at the top of a builtin chain, first to last; `hook_specification` is their text."""

    table: Table
    hook: Hook
    rules: tuple[Rule, ...]


def hook_rules(*, localhost: bool) -> tuple[HookRules, ...]:
    """Jumps from the builtin chains to ours, in kube-proxy's order; ``localhost`` node ports need one more.

    Clauses ``source-ranges.apply-to-pods``, ``source-ranges.apply-to-host``,
    ``node-port.forward-policy-drop.passes``.
    """
    services = "kubernetes service portals"
    external = Rule(Jump(names.EXTERNAL_SERVICES), _NEW, "kubernetes externally-visible service portals")
    guard = Rule(Jump(names.PROXY_FIREWALL), _NEW, "kubernetes load balancer firewall")
    forward = Rule(Jump(names.FORWARD), (), "kubernetes forwarding rules")
    health = Rule(Jump(names.NODE_PORTS), (), "kubernetes health check service ports")
    cluster = Rule(Jump(names.SERVICES), _NEW, services)
    portal = Rule(Jump(names.SERVICES), (), services)
    postrouting = Rule(Jump(names.POSTROUTING), (), "kubernetes postrouting rules")
    martians = (Rule(Jump(names.FIREWALL)),) if localhost else ()
    return (
        HookRules(Table.FILTER, Hook.INPUT, (*martians, guard, health, external)),
        HookRules(Table.FILTER, Hook.FORWARD, (guard, forward, cluster, external)),
        HookRules(Table.FILTER, Hook.OUTPUT, (*martians, guard, cluster)),
        HookRules(Table.NAT, Hook.PREROUTING, (portal,)),
        HookRules(Table.NAT, Hook.OUTPUT, (portal,)),
        HookRules(Table.NAT, Hook.POSTROUTING, (postrouting,)),
    )


def static_chains(options: Options) -> dict[Table, tuple[Chain, ...]]:
    """Our chains that do not depend on Services, except the martian guard."""
    marked = Mark(options.masquerade_mark, options.masquerade_mark)
    unmarked = Mark(options.masquerade_mark, options.masquerade_mark, negated=True)
    postrouting = (
        Rule(Return(), (unmarked,)),
        Rule(XorMark(options.masquerade_mark)),
        Rule(Masquerade(options.random_fully), (), "kubernetes service traffic requiring SNAT"),
    )
    known = Conntrack((ConntrackStatus.RELATED, ConntrackStatus.ESTABLISHED))
    forward = (
        *([Rule(Drop(), _drop_invalid_rules(options))] if options.drop_invalid else []),
        Rule(Accept(), (marked,), "kubernetes forwarding rules"),
        Rule(Accept(), (known,), "kubernetes forwarding conntrack rule"),
    )
    segment = (
        InInterface("lo", negated=True),
        Transport(Protocol.TCP),
        GoesOn(),
        *_drop_invalid_rules(options),
    )
    to_the_node = [Rule(Drop(), segment)] if options.drop_invalid_input else []
    health = [
        Rule(Accept(), (Transport(Protocol.TCP, port),), "health check node port")
        for port in options.health_check_ports
    ]
    return {
        Table.MANGLE: (),
        Table.NAT: (
            Chain(names.MARK_MASQUERADE, (Rule(OrMark(options.masquerade_mark)),)),
            Chain(names.POSTROUTING, postrouting),
        ),
        Table.FILTER: (Chain(names.FORWARD, forward), Chain(names.NODE_PORTS, (*to_the_node, *health))),
    }


def _drop_invalid_rules(options: Options) -> tuple[Match, ...]:
    counted = (
        (Counted(PacketCounter.INVALID_DROPPED),) if PacketCounter.INVALID_DROPPED in options.counters else ()
    )
    return (Conntrack((ConntrackStatus.INVALID,)), *counted)


def node_port_rules(context: Context) -> tuple[Rule, ...]:
    """Last rules of the nat table's KUBE-SERVICES: jump to KUBE-NODEPORTS for this node's own addresses."""
    return tuple(Rule(Jump(names.NODE_PORTS), where, _LAST) for where in node_port_destinations(context))


def martian_guard(context: Context) -> Chain | None:
    """KUBE-FIREWALL, needed while loopback addresses can be routed to (CVE-2020-8558).

    Clause ``node-port.localhost.martian-dropped``.
    """
    if not localhost_node_ports(context):
        return None
    expected = (ConntrackStatus.RELATED, ConntrackStatus.ESTABLISHED, ConntrackStatus.DNAT)
    matches = (
        Destination(LOOPBACK_IPV4),
        Source(LOOPBACK_IPV4, negated=True),
        Conntrack(expected, negated=True),
    )
    return Chain(names.FIREWALL, (Rule(Drop(), matches, "block incoming localnet connections"),))
