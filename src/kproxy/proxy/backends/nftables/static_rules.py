"""The part of the ruleset that does not depend on Services: hooks, chains, and empty sets and maps.

`kproxy.proxy.backends.nftables.compile` fills the maps; ``docs/backends/nftables.md`` has a drawing of a packet's path
through both.  Other programs' chains rely on the priorities (``nft.hooks``).  No rule accepts a packet
(``nft.no-accept``).  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network

from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.nftables import names
from kproxy.proxy.backends.nftables.names import FrontendMaps, PoolRole
from kproxy.proxy.backends.nftables.rules import (
    DSTNAT,
    FILTER,
    FRONTEND,
    SRCNAT,
    AddressIsLocal,
    AddressWithin,
    Chain,
    Collection,
    Dispatch,
    Drop,
    Field,
    GoesOn,
    Goto,
    Holds,
    Hook,
    HookPoint,
    InInterface,
    InSet,
    IsInvalid,
    IsNew,
    IsTranslated,
    Jump,
    Kind,
    Marked,
    Match,
    OfProtocol,
    Random,
    Reject,
    Rule,
    SetMark,
    ToggleMark,
    TranslateBy,
)
from kproxy.proxy.backends.nftables.rules import Masquerade as MasqueradeStatement
from kproxy.proxy.plan import (
    DetectByCIDR,
    DetectByInterface,
    DetectByInterfacePrefix,
    LocalDetector,
    MasqueradePolicy,
)

LOOPBACK = {Family.IPV4: ip_network("127.0.0.0/8"), Family.IPV6: ip_network("::1/128")}

MAX_AFFINITY_CLIENTS = 1 << 17
"""Largest number of clients under affinity; the kernel allocates 2 MB for them."""

BEFORE_DSTNAT = DSTNAT - 10
"""Priority of the check of source ranges: before DNAT, on original destinations (``nft.lbsr-pre-dnat``)."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the static rules, from the configuration and this machine.

    ``drop_invalid``: drop segments of conntrack state INVALID, which would reach the client untranslated, instead of
    forwarding them (``conntrack.invalid-not-leaked``); False where the sysctl ``nf_conntrack_tcp_be_liberal`` is set.
    ``drop_invalid_input``: drop those from other hosts to the node's own processes too
    (https://github.com/kubernetes/kubernetes/issues/117924); False also where ``nf_conntrack_tcp_loose`` is 0, for then
    every connection older than its tracking is invalid.
    """

    masquerade_mark: int = 0x4000
    drop_invalid: bool = True
    drop_invalid_input: bool = True


@dataclass(frozen=True, slots=True)
class Context:
    """Input of the static rules.

    ``cluster_ip_masquerade``: whose packets to cluster IPs are masqueraded.  ``node_port_ips``: node ports are
    accepted at addresses in the set of that name; else at every local address but loopback.
    """

    family: Family
    detector: LocalDetector
    cluster_ip_masquerade: MasqueradePolicy
    node_port_ips: bool
    options: Options = Options()


_DESTINATION = (Field.DESTINATION,)
_LOCAL_SOURCE = AddressIsLocal(Field.SOURCE)
_JUMP_MARK = Jump(names.MARK)


def static_collections(_context: Context) -> Iterator[Collection]:
    """All sets and maps; the kernel leaves some 80 characters for a comment."""
    yield Collection(
        name=names.CLUSTER_IPS,
        key=_DESTINATION,
        comment="every cluster IP, for other ports than those served",
    )
    yield Collection(
        name=names.SERVICE_CIDRS,
        key=_DESTINATION,
        interval=True,
        comment="networks that cluster IPs are taken from",
    )
    yield Collection(
        name=names.NODE_PORT_IPS, key=_DESTINATION, comment="addresses of this node that accept node ports"
    )
    yield Collection(
        name=names.HAIRPIN,
        key=(Field.SOURCE, Field.DESTINATION),
        comment="endpoints on this node, which may be sent to themselves",
    )
    yield Collection(name=names.FIREWALL_IPS, key=FRONTEND, comment="frontends with loadBalancerSourceRanges")
    yield Collection(
        name=names.FIREWALL_SOURCES,
        key=(*FRONTEND, Field.SOURCE),
        interval=True,
        comment="who may use them",
    )
    for way in FrontendMaps:
        yield from _maps(way)
    yield Collection(
        name=names.AFFINITY_CLIENTS,
        key=(Field.SOURCE, Random(2)),
        filled_up_to=MAX_AFFINITY_CLIENTS,
        comment="client, and the number of the endpoint it sticks to",
    )


def _maps(way: FrontendMaps) -> Iterator[Collection]:
    what = "frontend" if way is FrontendMaps.ADDRESS else "node port"
    yield Collection(
        name=way.policies, key=way.key, holds=Holds.VERDICT, comment=f"external {what}: its traffic policy"
    )
    yield Collection(
        name=way.no_endpoints,
        key=way.key,
        holds=Holds.VERDICT,
        comment=f"{what} without endpoints: refused, or dropped if other nodes have some",
    )
    for choice in PoolRole:
        pool = "endpoints" if choice is PoolRole.POOL else "endpoints beyond a Local policy"
        yield Collection(
            name=choice.dispatch(way),
            key=way.key,
            holds=Holds.VERDICT,
            comment=f"{what}: how many {pool} it has",
        )
        yield Collection(
            name=choice.endpoints(way),
            key=(*way.key, Random(2)),
            holds=Holds.ENDPOINT,
            comment=f"{what} and number: one of its {pool}",
        )


def static_chains(context: Context) -> Iterator[Chain]:
    """All chains but those that depend on counts of endpoints; a chain comes after those it jumps to."""
    yield Chain(names.REJECT, (Rule((Reject(),)),))
    yield Chain(names.MARK, (Rule((SetMark(context.options.masquerade_mark),)),))
    yield _postrouting_rules(context)
    yield _firewall()
    for way in FrontendMaps:
        for choice in PoolRole:
            yield endpoint_choice_chain(way, choice, 1)
        yield _cluster_policy(way)
        yield _local_policy(way, context)
    yield _services(context)
    yield from _check_chains(context)
    yield from _base_chains(context.options)


def endpoint_choice_chain(way: FrontendMaps, choice: PoolRole, count: int) -> Chain:
    """The chain that picks one of ``count`` endpoints with equal chances (``balancing.even``).

    While the number of endpoints shrinks, a packet may look up a number that has just been removed; the first endpoint
    always exists, so the chain falls back to it.
    """
    rules = [Rule((TranslateBy((*way.key, Random(count)), choice.endpoints(way)),))]
    if count > 1:
        rules.append(Rule((Goto(choice.one_of(way, 1)),), "a number that has just been removed"))
    return Chain(choice.one_of(way, count), tuple(rules))


def node_port_destinations(context: Context) -> tuple[Match, ...]:
    """The match for addresses that accept node ports; loopback never does.

    Clause ``node-port.localhost.default.either``.
    """
    if context.node_port_ips:
        return (InSet(_DESTINATION, names.NODE_PORT_IPS),)
    loopback = LOOPBACK[context.family]
    return (AddressWithin(Field.DESTINATION, loopback, negated=True), AddressIsLocal(Field.DESTINATION))


def from_pods(detector: LocalDetector, *, negated: bool = False) -> tuple[Match, ...]:
    """The match for packets of this node's pods (negated: of all others); none without a detector."""
    match detector:
        case DetectByCIDR(network):
            return (AddressWithin(Field.SOURCE, network, negated),)
        case DetectByInterface(name):
            return (InInterface(name, negated),)
        case DetectByInterfacePrefix(prefix):
            return (InInterface(f"{prefix}*", negated),)
        case None:
            return ()


def _postrouting_rules(context: Context) -> Chain:
    mark = context.options.masquerade_mark
    endpoints = InSet((Field.SOURCE, Field.DESTINATION), names.HAIRPIN)
    return Chain(
        names.MASQUERADING,
        (
            Rule((Marked(mark), ToggleMark(mark), MasqueradeStatement())),
            Rule((IsTranslated(), endpoints, MasqueradeStatement()), "an endpoint that was sent to itself"),
        ),
    )


def _firewall() -> Chain:
    guarded = InSet(FRONTEND, names.FIREWALL_IPS)
    others = InSet((*FRONTEND, Field.SOURCE), names.FIREWALL_SOURCES, negated=True)
    return Chain(names.FIREWALL_CHECK, (Rule((guarded, others, Drop()), "not in loadBalancerSourceRanges"),))


def _cluster_policy(way: FrontendMaps) -> Chain:
    to_endpoint = Dispatch(way.key, PoolRole.POOL.dispatch(way))
    return Chain(
        way.cluster,
        (Rule((_JUMP_MARK,)), Rule((to_endpoint,))),
        comment="externalTrafficPolicy Cluster: masqueraded, to any endpoint",
    )


def _local_policy(way: FrontendMaps, context: Context) -> Chain:
    """Rules that send pods and the node itself to all endpoints under external policy Local.

    Clauses ``external-policy.local.pods-reach-all-endpoints``, ``external-policy.local.host-reaches-all-endpoints``.
    """
    everywhere = Dispatch(way.key, PoolRole.SHORTCUT.dispatch(way))
    pods = from_pods(context.detector)
    rules = [Rule((*pods, everywhere), "pods of this node: to any endpoint, source kept")] if pods else []
    rules += [
        Rule((_LOCAL_SOURCE, _JUMP_MARK)),
        Rule((_LOCAL_SOURCE, everywhere), "the node itself: to any endpoint, masqueraded"),
        Rule(
            (Dispatch(way.key, PoolRole.POOL.dispatch(way)),),
            "others: to endpoints on this node, source kept",
        ),
    ]
    return Chain(way.local, tuple(rules), comment="externalTrafficPolicy Local")


def _services(context: Context) -> Chain:
    node = node_port_destinations(context)
    address = Dispatch(FRONTEND, FrontendMaps.ADDRESS.policies)
    return Chain(
        names.SERVICES,
        (
            Rule((address,), "external IPs and load balancers' IPs"),
            *_mark_to_cluster_ips(context),
            Rule((Dispatch(FRONTEND, PoolRole.POOL.dispatch(FrontendMaps.ADDRESS)),), "cluster IPs"),
            Rule(
                (*node, Dispatch(FrontendMaps.NODE_PORT.key, FrontendMaps.NODE_PORT.policies)), "node ports"
            ),
        ),
    )


def _mark_to_cluster_ips(context: Context) -> list[Rule]:
    """Rules that mark packets to cluster IPs for masquerade, by the node's policy.

    Clauses ``masquerade.all.cluster-ip-rewritten``, ``masquerade.cluster-ip.outside-rewritten``,
    ``masquerade.cluster-ip.no-detector.preserved``.
    """
    to_cluster_ip = InSet(_DESTINATION, names.CLUSTER_IPS)
    match context.cluster_ip_masquerade:
        case MasqueradePolicy.ALWAYS:
            return [Rule((to_cluster_ip, _JUMP_MARK), "masqueradeAll")]
        case MasqueradePolicy.OFF_CLUSTER if others := from_pods(context.detector, negated=True):
            return [Rule((to_cluster_ip, *others, _JUMP_MARK), "not from a pod of this node")]
    return []


def _check_chains(context: Context) -> Iterator[Chain]:
    node = node_port_destinations(context)
    yield Chain(
        names.SERVICE_ENDPOINTS_CHECK, (Rule((Dispatch(FRONTEND, FrontendMaps.ADDRESS.no_endpoints),)),)
    )
    yield Chain(
        names.NODE_PORT_ENDPOINTS_CHECK,
        (Rule((*node, Dispatch(FrontendMaps.NODE_PORT.key, FrontendMaps.NODE_PORT.no_endpoints))),),
    )
    yield Chain(
        names.CLUSTER_IPS_CHECK,
        (
            Rule((InSet(_DESTINATION, names.CLUSTER_IPS), Reject()), "a port that the Service does not have"),
            Rule((InSet(_DESTINATION, names.SERVICE_CIDRS), Drop()), "no Service has this address"),
        ),
    )


def _base_chains(options: Options) -> Iterator[Chain]:
    why = "would not be translated back"
    segment = InInterface("lo", negated=True), OfProtocol(Protocol.TCP), GoesOn(), IsInvalid()
    dropped = {
        HookPoint.INPUT: (Rule((*segment, Drop()), why),) if options.drop_invalid_input else (),
        HookPoint.FORWARD: (Rule((IsInvalid(), Drop()), why),) if options.drop_invalid else (),
    }
    for point in (HookPoint.PREROUTING, HookPoint.OUTPUT):
        rule = Rule((IsNew(), Jump(names.FIREWALL_CHECK)))
        yield Chain(f"filter-{point.value}-pre-dnat", (rule,), Hook(Kind.FILTER, point, BEFORE_DSTNAT))
    for point in (HookPoint.PREROUTING, HookPoint.OUTPUT):
        yield Chain(f"nat-{point.value}", (Rule((Jump(names.SERVICES),)),), Hook(Kind.NAT, point, DSTNAT))
    yield Chain(
        "nat-postrouting",
        (Rule((Jump(names.MASQUERADING),)),),
        Hook(Kind.NAT, HookPoint.POSTROUTING, SRCNAT),
    )
    for point, checks in (
        (HookPoint.INPUT, (names.NODE_PORT_ENDPOINTS_CHECK, names.SERVICE_ENDPOINTS_CHECK)),
        (HookPoint.FORWARD, (names.SERVICE_ENDPOINTS_CHECK, names.CLUSTER_IPS_CHECK)),
        (HookPoint.OUTPUT, (names.SERVICE_ENDPOINTS_CHECK, names.CLUSTER_IPS_CHECK)),
    ):
        rules = (*dropped.get(point, ()), *(Rule((IsNew(), Jump(check))) for check in checks))
        yield Chain(f"filter-{point.value}", rules, Hook(Kind.FILTER, point, FILTER))


BASE_CHAINS = tuple(chain.name for chain in _base_chains(Options()))
"""Names of the base chains."""
