"""Rules that do not depend on Services: hooks of the builtin chains, masquerade, forwarding.

Positions and conditions are kube-proxy's (behaviours ``ipt.chains.filter``, ``ipt.chains.nat``).  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kproxy.linux.netfilter.matches import (
    NOT_FIN_OR_RST,
    destination_in,
    in_interface,
    in_state,
    mark_is,
    of_protocol,
    or_mark,
    source_in,
    xor_mark,
)
from kproxy.linux.netfilter.rules import Chain, CountPacket, End, Jump, Masquerade, Point, Rule
from kproxy.model.network import Protocol
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.iptables.compile import localhost_node_ports, node_port_destinations
from kproxy.proxy.backends.node_ports import LOOPBACK_IPV4
from kproxy.proxy.backends.xtables.rules import HookRules, PacketCounter, TableName, to_port

if TYPE_CHECKING:
    from kproxy.linux.netfilter.rules import Match, Step
    from kproxy.proxy.backends.iptables.compile import Context

_NEW = in_state("new")
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


def hook_rules(*, localhost: bool) -> tuple[HookRules, ...]:
    """Jumps from the builtin chains to ours, in kube-proxy's order; ``localhost`` node ports need one more.

    Clauses ``source-ranges.apply-to-pods``, ``source-ranges.apply-to-host``,
    ``node-port.forward-policy-drop.passes``.
    """
    services = "kubernetes service portals"
    external = Rule((_NEW, Jump(names.EXTERNAL_SERVICES)), "kubernetes externally-visible service portals")
    guard = Rule((_NEW, Jump(names.PROXY_FIREWALL)), "kubernetes load balancer firewall")
    forward = Rule((Jump(names.FORWARD),), "kubernetes forwarding rules")
    health = Rule((Jump(names.NODE_PORTS),), "kubernetes health check service ports")
    cluster = Rule((_NEW, Jump(names.SERVICES)), services)
    portal = Rule((Jump(names.SERVICES),), services)
    postrouting = Rule((Jump(names.POSTROUTING),), "kubernetes postrouting rules")
    martians = (Rule((Jump(names.FIREWALL),)),) if localhost else ()
    return (
        HookRules(TableName.FILTER, Point.INPUT, (*martians, guard, health, external)),
        HookRules(TableName.FILTER, Point.FORWARD, (guard, forward, cluster, external)),
        HookRules(TableName.FILTER, Point.OUTPUT, (*martians, guard, cluster)),
        HookRules(TableName.NAT, Point.PREROUTING, (portal,)),
        HookRules(TableName.NAT, Point.OUTPUT, (portal,)),
        HookRules(TableName.NAT, Point.POSTROUTING, (postrouting,)),
    )


def static_chains(options: Options) -> dict[TableName, tuple[Chain, ...]]:
    """Our chains that do not depend on Services, except the martian guard."""
    marked = mark_is(options.masquerade_mark, options.masquerade_mark)
    unmarked = mark_is(options.masquerade_mark, options.masquerade_mark, negated=True)
    postrouting = (
        Rule((unmarked, End.RETURN)),
        Rule((xor_mark(options.masquerade_mark),)),
        Rule((Masquerade(random_fully=options.random_fully),), "kubernetes service traffic requiring SNAT"),
    )
    known = in_state("related", "established")
    forward = (
        *([Rule((*_invalid(options), End.DROP))] if options.drop_invalid else []),
        Rule((marked, End.ACCEPT), "kubernetes forwarding rules"),
        Rule((known, End.ACCEPT), "kubernetes forwarding conntrack rule"),
    )
    segment = (
        in_interface("lo", negated=True),
        of_protocol(Protocol.TCP),
        NOT_FIN_OR_RST,
        *_invalid(options),
    )
    to_the_node = [Rule((*segment, End.DROP))] if options.drop_invalid_input else []
    health = [
        Rule((to_port(Protocol.TCP, port), End.ACCEPT), "health check node port")
        for port in options.health_check_ports
    ]
    return {
        TableName.MANGLE: (),
        TableName.NAT: (
            Chain(names.MARK_MASQUERADE, (Rule((or_mark(options.masquerade_mark),)),)),
            Chain(names.POSTROUTING, postrouting),
        ),
        TableName.FILTER: (Chain(names.FORWARD, forward), Chain(names.NODE_PORTS, (*to_the_node, *health))),
    }


def _invalid(options: Options) -> tuple[Step, ...]:
    counter = PacketCounter.INVALID_DROPPED
    return (in_state("invalid"), *([CountPacket(counter.value)] if counter in options.counters else []))


def node_port_rules(context: Context) -> tuple[Rule, ...]:
    """Last rules of the nat table's KUBE-SERVICES: jump to KUBE-NODEPORTS for this node's own addresses."""
    return tuple(Rule((*where, Jump(names.NODE_PORTS)), _LAST) for where in node_port_destinations(context))


def martian_guard(context: Context) -> Chain | None:
    """KUBE-FIREWALL, needed while loopback addresses can be routed to (CVE-2020-8558).

    Clause ``node-port.localhost.martian-dropped``.
    """
    if not localhost_node_ports(context):
        return None
    matches: tuple[Match, ...] = (
        destination_in(LOOPBACK_IPV4),
        source_in(LOOPBACK_IPV4, negated=True),
        in_state("related", "established", "dnat", negated=True),
    )
    return Chain(names.FIREWALL, (Rule((*matches, End.DROP), "block incoming localnet connections"),))
