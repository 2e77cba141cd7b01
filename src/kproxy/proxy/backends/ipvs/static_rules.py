"""iptables chains of ipvs mode; their size does not depend on Services, whose addresses are members of ipsets.

The way of a packet from elsewhere::

    mangle PREROUTING  drops where policy Local finds no local endpoint; marks senders that may take the shortcut
    nat PREROUTING     marks packets to be masqueraded
    filter INPUT       drops invalid segments; source ranges; rejects ports that no Service has
    IPVS               chooses and rewrites the destination
    nat POSTROUTING    masquerades

A packet of the node itself reaches IPVS in OUTPUT, after mangle and nat but before filter; so mangle does for it
what filter does for others, and the chain that kube-proxy has for it in filter stays empty.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network

from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.ipvs import names
from kproxy.proxy.backends.ipvs.names import IpSet, set_name
from kproxy.proxy.backends.ipvs.rules import (
    Chains,
    Conntrack,
    Goto,
    HookRule,
    InSet,
    MapMark,
    Mark,
    Match,
    OfProtocol,
    OrMark,
    Rule,
    Ruleset,
    Source,
    State,
    Verdict,
    XorMark,
)
from kproxy.proxy.backends.xtables.rules import (
    DestinationIsLocal,
    GoesOn,
    InInterface,
    Jump,
    Masquerade,
    SourceIsLocal,
    Table,
)
from kproxy.proxy.plan import DetectByCIDR, DetectByInterface, DetectByInterfacePrefix, LocalDetector
from kproxy.proxy.plan import MasqueradePolicy as Wanted

_MARK_MASQUERADE = Jump(names.MARK_MASQUERADE)
_NEW = Conntrack(State.NEW)
_LOOPBACK = {Family.IPV4: ip_network("127.0.0.0/8"), Family.IPV6: ip_network("::1/128")}

SHORTCUT_MARK, SHORTCUT_MASK = 0x4B00_0000, 0xFF00_0000
"""Prefix of marks of shortcuts, and its mask; the other bits are the service port's number."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the chains, from the configuration and this machine.

    Clauses ``masquerade.foreign-mark-bits.kept``, ``masquerade.source-ports.redrawn``,
    ``conntrack.invalid-not-leaked``.

    ``drop_invalid_input``: drop invalid segments from other hosts to the node's own processes.
    """

    masquerade_mark: int = 0x4000
    random_fully: bool = True
    drop_invalid_input: bool = True


@dataclass(frozen=True, slots=True)
class ChainContext:
    """Input of the chains; ``cluster_ip_masquerade``: whose packets to cluster IPs are masqueraded."""

    family: Family
    detector: LocalDetector
    cluster_ip_masquerade: Wanted
    options: Options


def build_ruleset(context: ChainContext) -> Ruleset:
    """All chains and hooks of one family."""
    return Ruleset(context.family, _ChainBuilder(context).chains(), hook_rules())


def hook_rules() -> tuple[HookRule, ...]:
    """The jumps from the builtin chains, in order."""
    services = "kubernetes service portals"
    return (
        HookRule(
            Table.MANGLE, "PREROUTING", Rule(Jump(names.TRAFFIC_POLICY), (), "kubernetes traffic policy")
        ),
        HookRule(
            Table.MANGLE, "OUTPUT", Rule(Jump(names.IPVS_OUT_FILTER), (), "kubernetes ipvs access filter")
        ),
        HookRule(Table.MANGLE, "OUTPUT", Rule(Jump(names.TRAFFIC_POLICY), (), "kubernetes traffic policy")),
        HookRule(Table.NAT, "PREROUTING", Rule(Jump(names.SERVICES), (), services)),
        HookRule(Table.NAT, "OUTPUT", Rule(Jump(names.SERVICES), (), services)),
        HookRule(Table.NAT, "POSTROUTING", Rule(Jump(names.POSTROUTING), (), "kubernetes postrouting rules")),
        HookRule(Table.FILTER, "INPUT", Rule(Jump(names.PROXY_FIREWALL), (), "kube-proxy firewall rules")),
        HookRule(Table.FILTER, "INPUT", Rule(Jump(names.NODE_PORT), (), "kubernetes health check rules")),
        HookRule(Table.FILTER, "INPUT", Rule(Jump(names.IPVS_FILTER), (), "kubernetes ipvs access filter")),
        HookRule(Table.FILTER, "FORWARD", Rule(Jump(names.FORWARD), (), "kubernetes forwarding rules")),
    )


def mark_masks(options: Options) -> tuple[int, int]:
    """Prefix and mask of the marks of shortcuts, which spare the bit for masquerading."""
    return SHORTCUT_MARK & ~options.masquerade_mark, SHORTCUT_MASK & ~options.masquerade_mark


class _ChainBuilder:
    """Writes the chains of one context."""

    def __init__(self, context: ChainContext) -> None:
        self._context = context
        self._options = context.options

    def chains(self) -> Chains:
        return {
            Table.MANGLE: {
                names.TRAFFIC_POLICY: self._traffic_policy(),
                names.SHORTCUT: (Rule(MapMark(self._name(IpSet.SHORTCUT))),),
                names.IPVS_OUT_FILTER: self._firewall(),
                names.SOURCE_RANGES_FIREWALL: self._source_ranges(),
            },
            Table.NAT: {
                names.SERVICES: self._services(),
                names.LOAD_BALANCER: (
                    Rule(Verdict.RETURN, (self._to(IpSet.LOAD_BALANCER_LOCAL),)),
                    Rule(_MARK_MASQUERADE),
                ),
                names.NODE_PORT: self._node_ports(),
                names.MARK_MASQUERADE: (Rule(OrMark(self._options.masquerade_mark)),),
                names.POSTROUTING: self._postrouting(),
            },
            Table.FILTER: {
                names.PROXY_FIREWALL: (*self._invalid(), *self._firewall()),
                names.SOURCE_RANGES_FIREWALL: self._source_ranges(),
                names.NODE_PORT: (Rule(Verdict.ACCEPT, self._to_health_check()),),
                names.IPVS_FILTER: self._ipvs_filter(),
                names.IPVS_OUT_FILTER: (),
                names.FORWARD: self._forward(),
            },
        }

    def _name(self, which: IpSet) -> str:
        return set_name(which, self._context.family)

    def _in(self, which: IpSet, fields: str) -> InSet:
        return InSet(which, self._name(which), fields)

    def _to(self, which: IpSet) -> InSet:
        return self._in(which, "dst,dst")

    def _traffic_policy(self) -> tuple[Rule, ...]:
        """Drops of policy Local; the node and its pods, which the external policy does not bind, skip the external one."""
        shortcut = self._to(IpSet.SHORTCUT)
        senders = [(SourceIsLocal(),), *([pods] if (pods := _from_pods(self._context.detector)) else [])]
        return (
            Rule(Verdict.DROP, (self._to(IpSet.CLUSTER_IP_UNANSWERED), _NEW)),
            *(Rule(Goto(names.SHORTCUT), (shortcut, *sender)) for sender in senders),
            Rule(Verdict.DROP, (self._to(IpSet.EXTERNAL_UNANSWERED), _NEW)),
        )

    def _firewall(self) -> tuple[Rule, ...]:
        matches = (self._to(IpSet.LOAD_BALANCER_FIREWALL), _NEW)
        comment = "Kubernetes service load balancer ip + port for load balancer with sourceRange"
        return (Rule(Jump(names.SOURCE_RANGES_FIREWALL), matches, comment),)

    def _source_ranges(self) -> tuple[Rule, ...]:
        return (
            Rule(Verdict.RETURN, (self._in(IpSet.LOAD_BALANCER_SOURCE_CIDR, "dst,dst,src"),)),
            Rule(Verdict.RETURN, (self._in(IpSet.LOAD_BALANCER_SOURCE_IP, "dst,dst,src"),)),
            Rule(Verdict.DROP),
        )

    def _services(self) -> tuple[Rule, ...]:
        load_balancer = self._to(IpSet.LOAD_BALANCER)
        served = (IpSet.CLUSTER_IP, IpSet.LOAD_BALANCER, IpSet.EXTERNAL_IP, IpSet.EXTERNAL_IP_LOCAL)
        return (
            Rule(Verdict.RETURN, (Source(_LOOPBACK[self._context.family]),)),
            *self._cluster_ips(),
            Rule(_MARK_MASQUERADE, (self._to(IpSet.EXTERNAL_IP),), "Kubernetes service external ip + port"),
            Rule(Jump(names.LOAD_BALANCER), (load_balancer,), "Kubernetes service lb portal"),
            Rule(Jump(names.NODE_PORT), (DestinationIsLocal(),)),
            *(Rule(Verdict.ACCEPT, (self._to(which),)) for which in served),
        )

    def _cluster_ips(self) -> tuple[Rule, ...]:
        """Masquerade of packets to cluster IPs, and of the node's own, whose source is the cluster IP itself.

        Clause ``masquerade.cluster-ip.no-detector.host.either``.
        """
        cluster_ip = self._to(IpSet.CLUSTER_IP)
        comment = "Kubernetes service cluster ip + port for masquerade purpose"
        own = Rule(_MARK_MASQUERADE, (cluster_ip, self._in(IpSet.IPVS_IPS, "src")), comment)
        match self._context.cluster_ip_masquerade:
            case Wanted.ALWAYS:
                return (Rule(_MARK_MASQUERADE, (cluster_ip,), comment),)
            case Wanted.OFF_CLUSTER if elsewhere := _from_pods(self._context.detector, negated=True):
                return (Rule(_MARK_MASQUERADE, (cluster_ip, *elsewhere), comment), own)
        return (own,)

    def _node_ports(self) -> tuple[Rule, ...]:
        sets = {
            Protocol.TCP: (IpSet.NODE_PORT_LOCAL_TCP, IpSet.NODE_PORT_TCP, "dst"),
            Protocol.UDP: (IpSet.NODE_PORT_LOCAL_UDP, IpSet.NODE_PORT_UDP, "dst"),
            Protocol.SCTP: (IpSet.NODE_PORT_LOCAL_SCTP, IpSet.NODE_PORT_SCTP, "dst,dst"),
        }
        rules = []
        for protocol, (local, every, fields) in sets.items():
            rules.append(Rule(Verdict.RETURN, (OfProtocol(protocol), self._in(local, fields))))
            rules.append(Rule(_MARK_MASQUERADE, (OfProtocol(protocol), self._in(every, fields))))
        return tuple(rules)

    def _postrouting(self) -> tuple[Rule, ...]:
        """Masquerade of hairpins, of the node's packets through shortcuts, and of marked packets."""
        options = self._options
        masquerade, mark = Masquerade(options.random_fully), options.masquerade_mark
        comment = "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"
        return (
            Rule(masquerade, (self._in(IpSet.LOOP_BACK, "dst,dst,src"),), comment),
            Rule(masquerade, (Mark(*mark_masks(options)), SourceIsLocal())),
            Rule(Verdict.RETURN, (Mark(mark, mark, negated=True),)),
            Rule(XorMark(mark)),
            Rule(masquerade, (), "kubernetes service traffic requiring SNAT"),
        )

    def _to_health_check(self) -> tuple[Match, ...]:
        return OfProtocol(Protocol.TCP), self._in(IpSet.HEALTH_CHECK_NODE_PORT, "dst")

    def _ipvs_filter(self) -> tuple[Rule, ...]:
        return (
            Rule(Verdict.RETURN, (self._to(IpSet.SERVED),)),
            Rule(Verdict.RETURN, self._to_health_check()),
            Rule(Verdict.REJECT, (_NEW, self._in(IpSet.IPVS_IPS, "dst"))),
        )

    def _invalid(self) -> tuple[Rule, ...]:
        """Drop of invalid segments: IPVS translates them, masquerading does not, and the node's processes would reply.

        https://github.com/kubernetes/kubernetes/issues/117924
        """
        from_elsewhere, invalid = InInterface("lo", negated=True), Conntrack(State.INVALID)
        segment = from_elsewhere, OfProtocol(Protocol.TCP), GoesOn(), invalid
        return (Rule(Verdict.DROP, segment),) if self._options.drop_invalid_input else ()

    def _forward(self) -> tuple[Rule, ...]:
        mark = self._options.masquerade_mark
        return (
            Rule(Verdict.ACCEPT, (Mark(mark, mark),), "kubernetes forwarding rules"),
            Rule(Verdict.ACCEPT, (Conntrack(State.KNOWN),), "kubernetes forwarding conntrack rule"),
        )


def _from_pods(detector: LocalDetector, *, negated: bool = False) -> tuple[Match, ...]:
    """The match for packets of this node's pods (negated: of all others); none without a detector."""
    match detector:
        case DetectByCIDR(network):
            return (Source(network, negated),)
        case DetectByInterface(name):
            return (InInterface(name, negated),)
        case DetectByInterfacePrefix(prefix):
            return (InInterface(prefix + "+", negated),)
        case None:
            return ()
