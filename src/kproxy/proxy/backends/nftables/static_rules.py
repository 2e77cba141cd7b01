"""The part of the ruleset that does not depend on Services: hooks, chains, and empty sets and maps.

`kproxy.proxy.backends.nftables.compile` fills the maps; ``docs/backends/nftables.md`` has a drawing of a packet's path
through both.  Other programs' chains rely on the priorities (``nft.hooks``).  No rule accepts a packet
(``nft.no-accept``).  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network

from kproxy.linux.netfilter.matches import (
    DESTINATION_IS_LOCAL,
    NOT_FIN_OR_RST,
    SOURCE_IS_LOCAL,
    destination_in,
    in_interface,
    in_state,
    mark_is,
    of_protocol,
    or_mark,
    xor_mark,
)
from kproxy.linux.netfilter.patterns import AnyFlag, FieldName, RandomNumber
from kproxy.linux.netfilter.rules import (
    Chain,
    End,
    Goto,
    Hook,
    InSet,
    Is,
    Jump,
    MapLookup,
    Masquerade,
    Match,
    Point,
    Reject,
    Rule,
)
from kproxy.model.network import Family, Protocol
from kproxy.proxy.backends.nftables import names
from kproxy.proxy.backends.nftables.names import FrontendMaps, PoolRole
from kproxy.proxy.backends.nftables.rules import (
    DSTNAT,
    FILTER,
    FRONTEND,
    SRCNAT,
    CollectionDefinition,
    Holds,
)
from kproxy.proxy.backends.pods import from_pods
from kproxy.proxy.plan import LocalDetector, MasqueradePolicy

LOOPBACK = {Family.IPV4: ip_network("127.0.0.0/8"), Family.IPV6: ip_network("::1/128")}

DEFAULT_AFFINITY_CLIENTS = 131_072

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
    ``affinity_clients``: the most clients that are remembered, for which the kernel allocates 16 bytes each.
    """

    masquerade_mark: int = 0x4000
    drop_invalid: bool = True
    drop_invalid_input: bool = True
    affinity_clients: int = DEFAULT_AFFINITY_CLIENTS


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


_DESTINATION = (FieldName.DESTINATION,)
_NEW = in_state("new")
_INVALID = in_state("invalid")
_TRANSLATED = Is((FieldName.STATUS,), (AnyFlag(frozenset({"dnat"})),))
_MASQUERADE = Masquerade(random_fully=True)
_JUMP_MARK = Jump(names.MARK)


def static_collections(context: Context) -> Iterator[CollectionDefinition]:
    """All sets and maps; the kernel leaves some 80 characters for a comment."""
    yield CollectionDefinition(
        name=names.CLUSTER_IPS,
        key=_DESTINATION,
        comment="every cluster IP, for other ports than those served",
    )
    yield CollectionDefinition(
        name=names.SERVICE_CIDRS,
        key=_DESTINATION,
        interval=True,
        comment="networks that cluster IPs are taken from",
    )
    yield CollectionDefinition(
        name=names.NODE_PORT_IPS, key=_DESTINATION, comment="addresses of this node that accept node ports"
    )
    yield CollectionDefinition(
        name=names.HAIRPIN,
        key=(FieldName.SOURCE, FieldName.DESTINATION),
        comment="endpoints on this node, which may be sent to themselves",
    )
    yield CollectionDefinition(
        name=names.FIREWALL_IPS, key=FRONTEND, comment="frontends with loadBalancerSourceRanges"
    )
    yield CollectionDefinition(
        name=names.FIREWALL_SOURCES,
        key=(*FRONTEND, FieldName.SOURCE),
        interval=True,
        comment="who may use them",
    )
    for way in FrontendMaps:
        yield from _maps(way)
    yield CollectionDefinition(
        name=names.AFFINITY_CLIENTS,
        key=(FieldName.SOURCE, RandomNumber(2)),
        filled_up_to=context.options.affinity_clients,
        comment="client, and the number of the endpoint it sticks to",
    )


def _maps(way: FrontendMaps) -> Iterator[CollectionDefinition]:
    what = "frontend" if way is FrontendMaps.ADDRESS else "node port"
    yield CollectionDefinition(
        name=way.policies, key=way.key, holds=Holds.VERDICT, comment=f"external {what}: its traffic policy"
    )
    yield CollectionDefinition(
        name=way.no_endpoints,
        key=way.key,
        holds=Holds.VERDICT,
        comment=f"{what} without endpoints: refused, or dropped if other nodes have some",
    )
    for choice in PoolRole:
        pool = "endpoints" if choice is PoolRole.POOL else "endpoints beyond a Local policy"
        yield CollectionDefinition(
            name=choice.dispatch(way),
            key=way.key,
            holds=Holds.VERDICT,
            comment=f"{what}: how many {pool} it has",
        )
        yield CollectionDefinition(
            name=choice.endpoints(way),
            key=(*way.key, RandomNumber(2)),
            holds=Holds.ENDPOINT,
            comment=f"{what} and number: one of its {pool}",
        )


def static_chains(context: Context) -> Iterator[Chain]:
    """All chains but those that depend on counts of endpoints; a chain comes after those it jumps to."""
    yield Chain(names.REJECT, (Rule((Reject(),)),))
    yield Chain(names.MARK, (Rule((or_mark(context.options.masquerade_mark),)),))
    yield _postrouting_rules(context)
    yield _firewall()
    for way in FrontendMaps:
        for choice in PoolRole:
            yield endpoint_choice_chain(way, choice, 1)
        yield _cluster_policy(way)
        yield _local_policy(way, context)
    yield from _services(context)
    yield from _check_chains(context)
    yield from _base_chains(context.options)


def endpoint_choice_chain(way: FrontendMaps, choice: PoolRole, count: int) -> Chain:
    """The chain that picks one of ``count`` endpoints with equal chances (``balancing.even``).

    While the number of endpoints shrinks, a packet may look up a number that has just been removed; the first endpoint
    always exists, so the chain falls back to it.
    """
    rules = [Rule((MapLookup((*way.key, RandomNumber(count)), choice.endpoints(way), translate=True),))]
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
    return (destination_in(loopback, negated=True), DESTINATION_IS_LOCAL)


def _postrouting_rules(context: Context) -> Chain:
    mark = context.options.masquerade_mark
    endpoints = InSet((FieldName.SOURCE, FieldName.DESTINATION), names.HAIRPIN)
    return Chain(
        names.MASQUERADING,
        (
            Rule((mark_is(0, mark, negated=True), xor_mark(mark), _MASQUERADE)),
            Rule((_TRANSLATED, endpoints, _MASQUERADE), "an endpoint that was sent to itself"),
        ),
    )


def _firewall() -> Chain:
    guarded = InSet(FRONTEND, names.FIREWALL_IPS)
    others = InSet((*FRONTEND, FieldName.SOURCE), names.FIREWALL_SOURCES, negated=True)
    return Chain(
        names.FIREWALL_CHECK, (Rule((guarded, others, End.DROP), "not in loadBalancerSourceRanges"),)
    )


def _cluster_policy(way: FrontendMaps) -> Chain:
    to_endpoint = MapLookup(way.key, PoolRole.POOL.dispatch(way))
    return Chain(
        way.cluster,
        (Rule((_JUMP_MARK,)), Rule((to_endpoint,))),
        comment="externalTrafficPolicy Cluster: masqueraded, to any endpoint",
    )


def _local_policy(way: FrontendMaps, context: Context) -> Chain:
    """Rules that send pods and the node itself to all endpoints under external policy Local.

    Clauses ``external-policy.local.pods-reach-all-endpoints``, ``external-policy.local.host-reaches-all-endpoints``.
    """
    everywhere = MapLookup(way.key, PoolRole.SHORTCUT.dispatch(way))
    pods = from_pods(context.detector)
    rules = [Rule((*pods, everywhere), "pods of this node: to any endpoint, source kept")] if pods else []
    rules += [
        Rule((SOURCE_IS_LOCAL, _JUMP_MARK)),
        Rule((SOURCE_IS_LOCAL, everywhere), "the node itself: to any endpoint, masqueraded"),
        Rule(
            (MapLookup(way.key, PoolRole.POOL.dispatch(way)),),
            "others: to endpoints on this node, source kept",
        ),
    ]
    return Chain(way.local, tuple(rules), comment="externalTrafficPolicy Local")


def _services(context: Context) -> Iterator[Chain]:
    """A packet to no Service is looked up as few times as can be: only those to cluster IPs go through rules that mark."""
    marks = _marks(context)
    cluster_ips = Rule((MapLookup(FRONTEND, PoolRole.POOL.dispatch(FrontendMaps.ADDRESS)),), "cluster IPs")
    if marks:
        yield Chain(names.CLUSTER_IP_SERVICES, (*marks, cluster_ips))
        cluster_ips = Rule((InSet(_DESTINATION, names.CLUSTER_IPS), Jump(names.CLUSTER_IP_SERVICES)))
    external = Rule(
        (MapLookup(FRONTEND, FrontendMaps.ADDRESS.policies),), "external IPs and load balancers' IPs"
    )
    to_node_port = MapLookup(FrontendMaps.NODE_PORT.key, FrontendMaps.NODE_PORT.policies)
    node_ports = Rule((*node_port_destinations(context), to_node_port), "node ports")
    yield Chain(names.SERVICES, (external, cluster_ips, node_ports))


def _marks(context: Context) -> list[Rule]:
    """Rules that mark packets to cluster IPs for masquerade, by the node's policy.

    Clauses ``masquerade.all.cluster-ip-rewritten``, ``masquerade.cluster-ip.outside-rewritten``,
    ``masquerade.cluster-ip.no-detector.preserved``.
    """
    match context.cluster_ip_masquerade:
        case MasqueradePolicy.ALWAYS:
            return [Rule((_JUMP_MARK,), "masqueradeAll")]
        case MasqueradePolicy.OFF_CLUSTER if others := from_pods(context.detector, negated=True):
            return [Rule((*others, _JUMP_MARK), "not from a pod of this node")]
    return []


def _check_chains(context: Context) -> Iterator[Chain]:
    node = node_port_destinations(context)
    yield Chain(
        names.SERVICE_ENDPOINTS_CHECK, (Rule((MapLookup(FRONTEND, FrontendMaps.ADDRESS.no_endpoints),)),)
    )
    yield Chain(
        names.NODE_PORT_ENDPOINTS_CHECK,
        (Rule((*node, MapLookup(FrontendMaps.NODE_PORT.key, FrontendMaps.NODE_PORT.no_endpoints))),),
    )
    yield Chain(
        names.CLUSTER_IPS_CHECK,
        (
            Rule((InSet(_DESTINATION, names.CLUSTER_IPS), Reject()), "a port that the Service does not have"),
            Rule((InSet(_DESTINATION, names.SERVICE_CIDRS), End.DROP), "no Service has this address"),
        ),
    )


def _base_chains(options: Options) -> Iterator[Chain]:
    why = "would not be translated back"
    segment = in_interface("lo", negated=True), of_protocol(Protocol.TCP), NOT_FIN_OR_RST, _INVALID
    dropped = {
        Point.INPUT: (Rule((*segment, End.DROP), why),) if options.drop_invalid_input else (),
        Point.FORWARD: (Rule((_INVALID, End.DROP), why),) if options.drop_invalid else (),
    }
    for point in (Point.PREROUTING, Point.OUTPUT):
        rule = Rule((_NEW, Jump(names.FIREWALL_CHECK)))
        yield Chain(f"filter-{point.value}-pre-dnat", (rule,), Hook(point, BEFORE_DSTNAT))
    for point in (Point.PREROUTING, Point.OUTPUT):
        yield Chain(f"nat-{point.value}", (Rule((Jump(names.SERVICES),)),), Hook(point, DSTNAT, nat=True))
    yield Chain(
        "nat-postrouting",
        (Rule((Jump(names.MASQUERADING),)),),
        Hook(Point.POSTROUTING, SRCNAT, nat=True),
    )
    for point, checks in (
        (Point.INPUT, (names.NODE_PORT_ENDPOINTS_CHECK, names.SERVICE_ENDPOINTS_CHECK)),
        (Point.FORWARD, (names.SERVICE_ENDPOINTS_CHECK, names.CLUSTER_IPS_CHECK)),
        (Point.OUTPUT, (names.SERVICE_ENDPOINTS_CHECK, names.CLUSTER_IPS_CHECK)),
    ):
        rules = (*dropped.get(point, ()), *(Rule((_NEW, Jump(check))) for check in checks))
        yield Chain(f"filter-{point.value}", rules, Hook(point, FILTER))
