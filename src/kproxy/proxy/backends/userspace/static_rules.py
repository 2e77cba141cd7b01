"""Rules that do not depend on Services: jumps from the builtin chains, and what stands first in ours.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.linux.netfilter.matches import in_state, mark_is
from kproxy.linux.netfilter.patterns import FieldName, Masked
from kproxy.linux.netfilter.rules import ALL_BITS, End, Is, Jump, Point, Rule, SetMark
from kproxy.model.network import Protocol
from kproxy.proxy.backends.node_ports import node_port_destinations
from kproxy.proxy.backends.userspace import names
from kproxy.proxy.backends.xtables.rules import HookRules, TableName, to_port
from kproxy.proxy.plan.marks import RELAY_MARK, RELAY_MASK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kproxy.proxy.backends.userspace.compile import Context

_NEW = in_state("new")


def hook_rules() -> tuple[HookRules, ...]:
    """Jumps from the builtin chains to ours."""
    services = "handle ClusterIPs; NOTE: this must be before the NodePort rules"
    source = Rule((Jump(names.PORTALS_SOURCE),), "kubernetes service portals that keep sources")
    answer = Rule((Jump(names.PORTALS_ANSWER),), "kubernetes service portals that keep sources")
    refuse = Rule((_NEW, Jump(names.PORTALS_FILTER)), "kubernetes service portals without socket")
    admit = Rule((Jump(names.PORTALS_INPUT),), "kubernetes service portals")
    return (
        HookRules(TableName.MANGLE, Point.PREROUTING, (answer,)),
        HookRules(TableName.MANGLE, Point.OUTPUT, (source, answer)),
        HookRules(TableName.FILTER, Point.INPUT, (admit, refuse)),
        HookRules(TableName.FILTER, Point.FORWARD, (refuse,)),
        HookRules(TableName.FILTER, Point.OUTPUT, (refuse,)),
        HookRules(TableName.NAT, Point.PREROUTING, (Rule((Jump(names.PORTALS_CONTAINER),), services),)),
        HookRules(TableName.NAT, Point.OUTPUT, (Rule((Jump(names.PORTALS_HOST),), services),)),
    )


def input_rules(health_check_ports: Iterable[int]) -> tuple[Rule, ...]:
    """First rules of KUBE-PORTALS-INPUT: health checks, and packets of connections that a socket has accepted.

    Clause ``health-check.input-policy-drop.passes``.
    """
    health = [
        Rule((to_port(Protocol.TCP, port), End.ACCEPT), "health check node port")
        for port in health_check_ports
    ]
    mark, mask = names.ANSWER_MARK, names.ANSWER_MASK
    return (
        *health,
        Rule((mark_is(mark, mask), End.ACCEPT)),
        Rule((in_state("established"), in_state("dnat"), End.ACCEPT)),
        Rule((in_state("new", negated=True), End.RETURN)),
    )


def source_rules() -> dict[str, tuple[Rule, ...]]:
    """Chains of mangle: a connection that the relay begins from an address that the node does not have.

    IPVS sends packets from such addresses too; the mark tells them apart.  Answers go to that address, and are marked to be routed here; from an endpoint on this node they begin in OUTPUT.
    """
    mark, mask = names.ANSWER_MARK, names.ANSWER_MASK
    kept = Is((Masked(FieldName.CONNECTION_MARK, mask),), (mark,))
    answering = Is((FieldName.DIRECTION,), ("reply",))
    relays = mark_is(RELAY_MARK, RELAY_MASK)
    others = Is((FieldName.SOURCE_TYPE,), ("local",), negated=True)
    return {
        names.PORTALS_SOURCE: (
            Rule((relays, others, _NEW, SetMark(ALL_BITS ^ mask, mark, connection=True))),
        ),
        names.PORTALS_ANSWER: (Rule((kept, answering, SetMark(ALL_BITS ^ mask, mark))),),
    }


def node_port_rules(context: Context, chain: str) -> tuple[Rule, ...]:
    """Last rules of a chain of portals: the jump to that of node ports, for this node's own addresses."""
    return tuple(
        Rule((*where, Jump(chain)), "handle service NodePorts; NOTE: this must be the last rule in the chain")
        for where in node_port_destinations(context.family, context.node_ports)
    )
