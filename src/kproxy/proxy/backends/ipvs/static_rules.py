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

from kproxy.linux.netfilter.matches import (
    DESTINATION_IS_LOCAL,
    NOT_FIN_OR_RST,
    SOURCE_IS_LOCAL,
    in_interface,
    in_state,
    mark_is,
    of_protocol,
    or_mark,
    source_in,
    xor_mark,
)
from kproxy.linux.netfilter.patterns import FieldName
from kproxy.linux.netfilter.rules import (
    End,
    Goto,
    InSet,
    Is,
    Jump,
    MapMark,
    Masquerade,
    Match,
    Reject,
    Rule,
)
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.ipvs import names
from kproxy.proxy.backends.ipvs.names import IpSet, set_name
from kproxy.proxy.backends.ipvs.rules import Chains, HookRule, Ruleset
from kproxy.proxy.backends.pods import from_pods
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import LocalDetector
from kproxy.proxy.plan import MasqueradePolicy as Wanted

_MARK_MASQUERADE = Jump(names.MARK_MASQUERADE)
_NEW = in_state("new")
_NOT_LOCAL = Is(DESTINATION_IS_LOCAL.key, DESTINATION_IS_LOCAL.pattern, negated=True)
_TO_PORT = (FieldName.PROTOCOL, FieldName.PORT)
_TO_SOCKET = (FieldName.DESTINATION, *_TO_PORT)
_FROM_ADDRESS_TO_SOCKET = (*_TO_SOCKET, FieldName.SOURCE)
_LOOPBACK = {Family.IPV4: ip_network("127.0.0.0/8"), Family.IPV6: ip_network("::1/128")}

SHORTCUT_MARK, SHORTCUT_MASK = 0x4B00_0000, 0xFF00_0000
"""Prefix of marks of shortcuts, and its mask; the other bits are the frontend's number."""


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
    """All chains and hooks of one family; a match that is cheap stands before one that looks up a set."""
    return Ruleset(context.family, _ChainBuilder(context).chains(), hook_rules())


def interim_ruleset(ruleset: Ruleset) -> Ruleset:
    """The chains while another mode serves: what it sees to passes ours unchanged.

    Packets are marked, and then accepted when forwarded, only where the address is on the device; none ends its way in KUBE-SERVICES.
    """
    nat = ruleset.chains[TableName.NAT]
    services = tuple(
        Rule((DESTINATION_IS_LOCAL, *rule.steps), rule.comment)
        for rule in nat[names.SERVICES]
        if rule.steps[-1] not in (End.ACCEPT, End.RETURN)
    )
    return Ruleset(
        ruleset.family,
        {**ruleset.chains, TableName.NAT: {**nat, names.SERVICES: services}},
        ruleset.hooks,
    )


def hook_rules() -> tuple[HookRule, ...]:
    """The jumps from the builtin chains, in order; those of mangle are for what IPVS may schedule, which is new to conntrack.

    IPVS deletes the entry of conntrack with its own.
    """
    services = "kubernetes service portals"
    policy = Rule((_NEW, Jump(names.TRAFFIC_POLICY)), "kubernetes traffic policy")
    access = Rule((_NEW, Jump(names.IPVS_OUT_FILTER)), "kubernetes ipvs access filter")
    return (
        HookRule(TableName.MANGLE, "PREROUTING", policy),
        HookRule(TableName.MANGLE, "OUTPUT", access),
        HookRule(TableName.MANGLE, "OUTPUT", policy),
        HookRule(TableName.NAT, "PREROUTING", Rule((Jump(names.SERVICES),), services)),
        HookRule(TableName.NAT, "OUTPUT", Rule((Jump(names.SERVICES),), services)),
        HookRule(
            TableName.NAT, "POSTROUTING", Rule((Jump(names.POSTROUTING),), "kubernetes postrouting rules")
        ),
        HookRule(TableName.FILTER, "INPUT", Rule((Jump(names.PROXY_FIREWALL),), "kube-proxy firewall rules")),
        HookRule(TableName.FILTER, "INPUT", Rule((Jump(names.NODE_PORT),), "kubernetes health check rules")),
        HookRule(
            TableName.FILTER, "INPUT", Rule((Jump(names.IPVS_FILTER),), "kubernetes ipvs access filter")
        ),
        HookRule(TableName.FILTER, "FORWARD", Rule((Jump(names.FORWARD),), "kubernetes forwarding rules")),
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
            TableName.MANGLE: {
                names.TRAFFIC_POLICY: self._traffic_policy(),
                names.EXTERNAL_POLICY: self._external_policy(),
                names.SHORTCUT: (Rule((MapMark(_TO_SOCKET, self._name(IpSet.SHORTCUT)),)),),
                names.IPVS_OUT_FILTER: self._firewall(),
                names.SOURCE_RANGES_FIREWALL: self._source_ranges(),
            },
            TableName.NAT: {
                names.SERVICES: self._services(),
                names.LOAD_BALANCER: (
                    Rule((self._to(IpSet.LOAD_BALANCER_LOCAL), End.RETURN)),
                    Rule((_MARK_MASQUERADE,)),
                ),
                names.NODE_PORT: self._node_ports(),
                names.MARK_MASQUERADE: (Rule((or_mark(self._options.masquerade_mark),)),),
                names.POSTROUTING: self._postrouting(),
            },
            TableName.FILTER: {
                names.PROXY_FIREWALL: (*self._invalid(), *self._firewall()),
                names.SOURCE_RANGES_FIREWALL: self._source_ranges(),
                names.NODE_PORT: (Rule((*self._to_health_check(), End.ACCEPT)),),
                names.IPVS_FILTER: self._ipvs_filter(),
                names.IPVS_OUT_FILTER: (),
                names.FORWARD: self._forward(),
            },
        }

    def _name(self, which: IpSet) -> str:
        return set_name(which, self._context.family)

    def _in(self, which: IpSet, *key: FieldName) -> InSet:
        return InSet(key, self._name(which))

    def _to(self, which: IpSet) -> InSet:
        return self._in(which, *_TO_SOCKET)

    def _traffic_policy(self) -> tuple[Rule, ...]:
        """Drops of policy Local; the node and its pods, which the external policy does not bind, skip the external one."""
        return (
            Rule((self._to(IpSet.CLUSTER_IP_UNANSWERED), _NEW, End.DROP)),
            Rule((self._to(IpSet.SHORTCUT), Goto(names.EXTERNAL_POLICY))),
        )

    def _external_policy(self) -> tuple[Rule, ...]:
        """Marks and drops of packets to frontends of policy Local: all that have no endpoint here have a shortcut."""
        senders = [(SOURCE_IS_LOCAL,), *([pods] if (pods := from_pods(self._context.detector)) else [])]
        return (
            *(Rule((*sender, Goto(names.SHORTCUT))) for sender in senders),
            Rule((self._to(IpSet.EXTERNAL_UNANSWERED), _NEW, End.DROP)),
        )

    def _firewall(self) -> tuple[Rule, ...]:
        comment = "Kubernetes service load balancer ip + port for load balancer with sourceRange"
        steps = _NEW, self._to(IpSet.LOAD_BALANCER_FIREWALL), Jump(names.SOURCE_RANGES_FIREWALL)
        return (Rule(steps, comment),)

    def _source_ranges(self) -> tuple[Rule, ...]:
        return (
            Rule((self._in(IpSet.LOAD_BALANCER_SOURCE_CIDR, *_FROM_ADDRESS_TO_SOCKET), End.RETURN)),
            Rule((self._in(IpSet.LOAD_BALANCER_SOURCE_IP, *_FROM_ADDRESS_TO_SOCKET), End.RETURN)),
            Rule((End.DROP,)),
        )

    def _services(self) -> tuple[Rule, ...]:
        """Marks of packets to Services.  Those for no address of this node leave first.

        Packets in a shortcut get no other mark: IPVS would not know theirs with another bit.  They would, while policy
        Local becomes Cluster: their address is in a set to be masqueraded before the virtual server of all others has
        remote endpoints, and has its shortcut until then.
        """
        load_balancer = self._to(IpSet.LOAD_BALANCER)
        in_shortcut = mark_is(*mark_masks(self._options)), self._to(IpSet.SHORTCUT)
        return (
            Rule((source_in(_LOOPBACK[self._context.family]), End.RETURN)),
            Rule((_NOT_LOCAL, End.RETURN)),
            *self._cluster_ips(),
            Rule((self._to(IpSet.CLUSTER_IP), End.ACCEPT)),
            Rule((*in_shortcut, End.ACCEPT)),
            Rule((self._to(IpSet.EXTERNAL_IP), _MARK_MASQUERADE), "Kubernetes service external ip + port"),
            Rule((load_balancer, Jump(names.LOAD_BALANCER)), "Kubernetes service lb portal"),
            Rule((self._to(IpSet.SERVED), End.ACCEPT)),
            Rule((Jump(names.NODE_PORT),)),
        )

    def _cluster_ips(self) -> tuple[Rule, ...]:
        """Masquerade of packets to cluster IPs, and of the node's own, whose source is the cluster IP itself.

        Clause ``masquerade.cluster-ip.no-detector.host.either``.
        """
        cluster_ip = self._to(IpSet.CLUSTER_IP)
        comment = "Kubernetes service cluster ip + port for masquerade purpose"
        own = Rule((self._in(IpSet.IPVS_IPS, FieldName.SOURCE), cluster_ip, _MARK_MASQUERADE), comment)
        match self._context.cluster_ip_masquerade:
            case Wanted.ALWAYS:
                return (Rule((cluster_ip, _MARK_MASQUERADE), comment),)
            case Wanted.OFF_CLUSTER if elsewhere := from_pods(self._context.detector, negated=True):
                return (Rule((cluster_ip, *elsewhere, _MARK_MASQUERADE), comment), own)
        return (own,)

    def _node_ports(self) -> tuple[Rule, ...]:
        sets = {
            Protocol.TCP: (IpSet.NODE_PORT_LOCAL_TCP, IpSet.NODE_PORT_TCP, (FieldName.PORT,)),
            Protocol.UDP: (IpSet.NODE_PORT_LOCAL_UDP, IpSet.NODE_PORT_UDP, (FieldName.PORT,)),
            Protocol.SCTP: (IpSet.NODE_PORT_LOCAL_SCTP, IpSet.NODE_PORT_SCTP, _TO_SOCKET),
        }
        rules = []
        for protocol, (local, every, key) in sets.items():
            rules.append(Rule((of_protocol(protocol), self._in(local, *key), End.RETURN)))
            rules.append(Rule((of_protocol(protocol), self._in(every, *key), _MARK_MASQUERADE)))
        return tuple(rules)

    def _postrouting(self) -> tuple[Rule, ...]:
        """Masquerade of hairpins, of the node's packets through shortcuts, and of marked packets."""
        options = self._options
        masquerade, mark = Masquerade(random_fully=options.random_fully), options.masquerade_mark
        comment = "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"
        return (
            Rule((self._in(IpSet.LOOP_BACK, *_FROM_ADDRESS_TO_SOCKET), masquerade), comment),
            Rule((mark_is(*mark_masks(options)), SOURCE_IS_LOCAL, masquerade)),
            Rule((mark_is(mark, mark, negated=True), End.RETURN)),
            Rule((xor_mark(mark),)),
            Rule((masquerade,), "kubernetes service traffic requiring SNAT"),
        )

    def _to_health_check(self) -> tuple[Match, ...]:
        return of_protocol(Protocol.TCP), self._in(IpSet.HEALTH_CHECK_NODE_PORT, FieldName.PORT)

    def _ipvs_filter(self) -> tuple[Rule, ...]:
        return (
            Rule((self._to(IpSet.SERVED), End.RETURN)),
            Rule((*self._to_health_check(), End.RETURN)),
            Rule((_NEW, self._in(IpSet.IPVS_IPS, FieldName.DESTINATION), Reject())),
        )

    def _invalid(self) -> tuple[Rule, ...]:
        """Drop of invalid segments: IPVS translates them, masquerading does not, and the node's processes would reply.

        https://github.com/kubernetes/kubernetes/issues/117924
        """
        from_elsewhere, invalid = in_interface("lo", negated=True), in_state("invalid")
        segment = from_elsewhere, of_protocol(Protocol.TCP), NOT_FIN_OR_RST, invalid
        return (Rule((*segment, End.DROP)),) if self._options.drop_invalid_input else ()

    def _forward(self) -> tuple[Rule, ...]:
        mark = self._options.masquerade_mark
        return (
            Rule((mark_is(mark, mark), End.ACCEPT), "kubernetes forwarding rules"),
            Rule((in_state("related", "established"), End.ACCEPT), "kubernetes forwarding conntrack rule"),
        )
