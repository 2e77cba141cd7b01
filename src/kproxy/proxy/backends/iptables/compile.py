"""Compiler of one service port to iptables rules, in kube-proxy's layout: ServicePlan in, typed rules out.

`dispatch` returns the rules that lead packets to the service port, in chains shared with all others;
`own_chains` its own chains.  The way of a packet through the nat table::

    KUBE-SERVICES --cluster IP--> KUBE-SVC (cluster) or KUBE-SVL (local endpoints) --at random--> KUBE-SEP
    KUBE-SERVICES --external address--> [KUBE-FW: source ranges] --> KUBE-EXT --> KUBE-SVC or KUBE-SVL
    KUBE-NODEPORTS --node port--> KUBE-EXT

Packets that nat does not rewrite, since no endpoint may answer, are rejected or dropped in filter.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kproxy.linux.netfilter.matches import (
    SOURCE_IS_LOCAL,
    destination_in,
    of_protocol,
    share_of,
    source_in,
)
from kproxy.linux.netfilter.rules import (
    Chain,
    CountPacket,
    Dnat,
    End,
    Jump,
    Recent,
    Reject,
    Remember,
    Rule,
)
from kproxy.model.network import format_socket
from kproxy.proxy.backends import node_ports
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.iptables.names import SharedChain
from kproxy.proxy.backends.iptables.rules import NamedEndpoint, SharedRule
from kproxy.proxy.backends.node_ports import LOOPBACK_IPV4
from kproxy.proxy.backends.pods import from_pods
from kproxy.proxy.backends.xtables.rules import Destination, PacketCounter
from kproxy.proxy.plan import Exposure, MasqueradePolicy, OnEmpty

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproxy.linux.netfilter.rules import Match, Step
    from kproxy.model.network import Address, Family, Network
    from kproxy.proxy.backends.xtables.rules import ChainName
    from kproxy.proxy.plan import (
        Frontend,
        LocalDetector,
        NodePorts,
        Pool,
        PoolEndpoint,
        PoolScope,
        ServicePlan,
    )

MAX_ENDPOINTS_PER_CHAIN = 64
"""More endpoints are grouped, as a connection passes half of a chain's rules on average: about 0.5 us for 64."""

_MARK_MASQUERADE = Jump(names.MARK_MASQUERADE)
_EXPOSED_AS = {Exposure.EXTERNAL_IP: "external IP", Exposure.LOAD_BALANCER: "loadbalancer IP"}


@dataclass(frozen=True, slots=True)
class Context:
    """All that a service port's rules depend on besides its own plan.

    ``endpoint_comments`` is False in large clusters, where they are left out of the rules that
    exist once per endpoint (clause ``balancing.any-number-of-endpoints``).  ``count_localhost``: node ports at
    loopback
    addresses, if there are any, have a counter.
    """

    family: Family
    detector: LocalDetector
    node_ports: NodePorts
    endpoint_comments: bool = True
    count_localhost: bool = False


def dispatch(service: ServicePlan, context: Context) -> Iterator[SharedRule]:
    """The rules that lead packets for its frontends to the service port, or reject or drop them."""
    suffix = names.name_hash(names.identity(service))
    for frontend in service.frontends:
        if _has_endpoints(frontend):
            if frontend.exposure is Exposure.NODE_PORT and context.count_localhost:
                yield _counting_rule(service, frontend, suffix)
            yield _dispatch_rule(service, frontend, suffix)
        if frontend.sources is not None:
            yield from _firewall(service, frontend, suffix)
        if not frontend.pool.endpoints:
            yield from _reject_rule(service, frontend, context)


def own_chains(service: ServicePlan, context: Context) -> tuple[Chain, ...]:
    """The service port's own chains in the nat table; none when nothing can answer (``ipt.only-needed``).

    Pools and their endpoints come last: a chain for each pool that is used, and one for each endpoint in any of them.
    """
    identity = names.identity(service)
    suffix = names.name_hash(identity)
    external = [f for f in service.frontends if f.exposure is not Exposure.CLUSTER_IP and _has_endpoints(f)]
    found: list[Chain] = []
    if external:
        found.append(_external_chain(service, external[0], suffix, context))
    guarded = [f for f in external if f.sources is not None]
    if guarded:
        found.append(_source_ranges_chain(service, guarded, suffix))
    targets: dict[str, NamedEndpoint] = {}
    for scope, pool in _pools(service).items():
        members = [_target(endpoint, identity) for endpoint in pool.endpoints]
        found += _pool_chains(service, scope, members, suffix, context)
        targets.update([(target.text, target) for target in members])
    comment = str(service.name) if context.endpoint_comments else ""
    found += [_endpoint_chain(target, service, comment) for target in targets.values()]
    return tuple(found)


def node_port_destinations(context: Context) -> tuple[tuple[Match, ...], ...]:
    """Alternative matches of a destination that accepts node ports; each makes a rule of its own."""
    return node_ports.node_port_destinations(context.family, context.node_ports)


def localhost_node_ports(context: Context) -> bool:
    """True if IPv4 loopback addresses accept node ports (``node-port.localhost.martian-dropped``)."""
    return node_ports.localhost_node_ports(context.family, context.node_ports)


def _has_endpoints(frontend: Frontend) -> bool:
    """True if some packet to the frontend may reach an endpoint."""
    return bool(frontend.pool.endpoints or (frontend.shortcut and frontend.shortcut.endpoints))


def _destination(service: ServicePlan, frontend: Frontend) -> Destination:
    return Destination(frontend.address, service.protocol, frontend.port)


def _counting_rule(service: ServicePlan, frontend: Frontend, suffix: str) -> SharedRule:
    """Rule before the node port's own: the same jump for 127.0.0.0/8, with an nfacct counter."""
    counted = CountPacket(PacketCounter.LOCALHOST_ACCEPTED.value)
    destination = _destination(service, frontend)
    matches = (*destination.matches, destination_in(LOOPBACK_IPV4), counted)
    rule = Rule((*matches, Jump(names.EXTERNAL_PREFIX + suffix)), str(service.name))
    return SharedRule(SharedChain.NAT_NODE_PORTS, rule, destination)


def _dispatch_rule(service: ServicePlan, frontend: Frontend, suffix: str) -> SharedRule:
    destination = _destination(service, frontend)
    matches = destination.matches
    match frontend.exposure:
        case Exposure.CLUSTER_IP:
            target = names.POOL_PREFIX[frontend.pool.scope] + suffix
            rule = Rule((*matches, Jump(target)), f"{service.name} cluster IP")
        case Exposure.NODE_PORT:
            rule = Rule((*matches, Jump(names.EXTERNAL_PREFIX + suffix)), str(service.name))
            return SharedRule(SharedChain.NAT_NODE_PORTS, rule, destination)
        case Exposure.EXTERNAL_IP | Exposure.LOAD_BALANCER as exposure:
            prefix = names.EXTERNAL_PREFIX if frontend.sources is None else names.SOURCE_RANGES_PREFIX
            comment = f"{service.name} {_EXPOSED_AS[exposure]}"
            rule = Rule((*matches, Jump(prefix + suffix)), comment)
    return SharedRule(SharedChain.NAT_SERVICES, rule, destination)


def _firewall(service: ServicePlan, frontend: Frontend, suffix: str) -> Iterator[SharedRule]:
    """KUBE-PROXY-FIREWALL rules of a frontend with source ranges: packets that reach filter without DNAT are dropped.

    Without endpoints no packet is rewritten, so admitted sources return first and are rejected as without ranges.

    Clause ``source-ranges.outside-dropped``.
    """
    destination = _destination(service, frontend)
    addressed = destination.matches
    if not _has_endpoints(frontend):
        for source in _admitted(frontend):
            admitted = Rule((source_in(source), *addressed, End.RETURN))
            yield SharedRule(SharedChain.FILTER_FIREWALL, admitted, destination)
    comment = f"{service.name} traffic not accepted by {names.SOURCE_RANGES_PREFIX}{suffix}"
    yield SharedRule(SharedChain.FILTER_FIREWALL, Rule((*addressed, End.DROP), comment), destination)


def _reject_rule(service: ServicePlan, frontend: Frontend, context: Context) -> Iterator[SharedRule]:
    target: Step = End.DROP if frontend.on_empty is OnEmpty.DROP else Reject()
    missing = "local endpoints" if frontend.on_empty is OnEmpty.DROP else "endpoints"
    comment = f"{service.name} has no {missing}"
    destination = _destination(service, frontend)
    addressed = destination.matches
    if frontend.exposure is Exposure.CLUSTER_IP:
        yield SharedRule(SharedChain.FILTER_SERVICES, Rule((*addressed, target), comment), destination)
    elif frontend.address is not None:
        yield SharedRule(SharedChain.FILTER_EXTERNAL, Rule((*addressed, target), comment), destination)
    else:
        for where in node_port_destinations(context):
            rule = Rule((*where, *addressed, target), comment)
            yield SharedRule(SharedChain.FILTER_EXTERNAL, rule, destination)


def _admitted(frontend: Frontend) -> tuple[Address | Network, ...]:
    own = (frontend.address,) if frontend.allow_hairpin_source and frontend.address is not None else ()
    return (*(frontend.sources or ()), *own)


def _pools(service: ServicePlan) -> dict[PoolScope, Pool]:
    """The pools with endpoints that some frontend uses."""
    used = [p for f in service.frontends for p in (f.pool, f.shortcut) if p is not None and p.endpoints]
    return {pool.scope: pool for pool in used}


def _external_chain(service: ServicePlan, frontend: Frontend, suffix: str, context: Context) -> Chain:
    """KUBE-EXT: senders in the cluster jump to the pool of all endpoints; others are masqueraded, then to the policy's pool.

    All frontends but the cluster IP have the same external traffic policy, so any of them stands for all.
    """
    subject = f"{service.name} external destinations"
    rules: list[Rule] = []
    if frontend.shortcut is not None and frontend.shortcut.endpoints:
        everywhere = Jump(names.POOL_PREFIX[frontend.shortcut.scope] + suffix)
        pods = from_pods(context.detector)
        if pods:
            rules.append(Rule((*pods, everywhere), f"pod traffic for {subject}"))
        rules.append(Rule((SOURCE_IS_LOCAL, _MARK_MASQUERADE), f"masquerade LOCAL traffic for {subject}"))
        rules.append(Rule((SOURCE_IS_LOCAL, everywhere), f"route LOCAL traffic for {subject}"))
    rules += _masquerade(frontend.masquerade, (), f"masquerade traffic for {subject}", context)
    if frontend.pool.endpoints:
        rules.append(Rule((Jump(names.POOL_PREFIX[frontend.pool.scope] + suffix),)))
    return Chain(names.EXTERNAL_PREFIX + suffix, tuple(rules))


def _source_ranges_chain(service: ServicePlan, guarded: list[Frontend], suffix: str) -> Chain:
    """KUBE-FW: jumps to KUBE-EXT for admitted sources; others are not rewritten, and KUBE-PROXY-FIREWALL drops them.

    Clause ``source-ranges.inside-allowed``.
    """
    target = Jump(names.EXTERNAL_PREFIX + suffix)
    sources = dict.fromkeys(source for frontend in guarded for source in _admitted(frontend))
    comment = f"{service.name} loadbalancer IP"
    rules = tuple(Rule((source_in(source), target), comment) for source in sources)
    return Chain(names.SOURCE_RANGES_PREFIX + suffix, rules)


def _pool_chains(
    service: ServicePlan, scope: PoolScope, members: list[NamedEndpoint], suffix: str, context: Context
) -> list[Chain]:
    """Chain that chooses an endpoint: the client's previous one under affinity, else one at random; and chains of choices.

    Clauses ``balancing.every-endpoint-chosen``, ``affinity.client-ip.sticks``.
    """
    name = names.POOL_PREFIX[scope] + suffix
    rules: list[Rule] = []
    for frontend in service.frontends:
        if frontend.exposure is Exposure.CLUSTER_IP and frontend.pool.scope is scope:
            addressed = _destination(service, frontend).matches
            rules += _masquerade(frontend.masquerade, addressed, f"{service.name} cluster IP", context)
    subject = f"{service.name} -> " if context.endpoint_comments else ""
    if service.affinity_seconds is not None:
        for member in members:
            recently = Recent(member.chain, service.affinity_seconds)
            rules.append(Rule((recently, Jump(member.chain)), subject and subject + member.text))
    choices, below = _choices(members, name, "", subject)
    return [Chain(name, (*rules, *choices)), *below]


def _choices(
    members: list[NamedEndpoint], pool: ChainName, digits: str, subject: str
) -> tuple[list[Rule], list[Chain]]:
    """The rules that choose one of these endpoints evenly, and the chains that they need.

    Up to `MAX_ENDPOINTS_PER_CHAIN` rules in one chain are for an endpoint each.  More are first grouped by the next digit of the endpoints' chains' names,
    so that an endpoint that comes or goes concerns its own group and how often that is chosen.
    """
    if len(members) <= MAX_ENDPOINTS_PER_CHAIN or len(digits) == names.GROUP_DIGITS:
        groups = {member.chain: [member] for member in members}
    else:
        groups = {}
        for member in sorted(members, key=lambda each: each.chain):
            digit = member.chain[len(names.ENDPOINT_PREFIX) + len(digits)]
            groups.setdefault(names.group_of_endpoints(pool, digits + digit), []).append(member)
    rules: list[Rule] = []
    chains: list[Chain] = []
    left = len(members)
    for group, some in groups.items():
        alone = len(some) == 1
        jump = Jump(some[0].chain if alone else group)
        comment = subject and subject + (some[0].text if alone else f"{len(some)} endpoints")
        rules.append(Rule((share_of(len(some), left), jump) if left > len(some) else (jump,), comment))
        left -= len(some)
        if not alone:
            own, below = _choices(some, pool, group.rpartition("-")[2], subject)
            chains += [Chain(group, tuple(own)), *below]
    return rules, chains


def _endpoint_chain(target: NamedEndpoint, service: ServicePlan, comment: str) -> Chain:
    """KUBE-SEP: masquerades the endpoint's own packets, whose replies would bypass this node, then rewrites the destination.

    Clauses ``masquerade.hairpin.rewritten``, ``affinity.client-ip.by-original-source``.
    """
    translate = of_protocol(service.protocol), Dnat(target.endpoint.address, target.endpoint.port)
    affinity = service.affinity_seconds is not None
    rules = (
        Rule((source_in(target.endpoint.address), _MARK_MASQUERADE), comment),
        Rule((Remember(target.chain), *translate) if affinity else translate, comment),
    )
    return Chain(target.chain, rules)


def _masquerade(
    kind: MasqueradePolicy, addressed: tuple[Match, ...], comment: str, context: Context
) -> list[Rule]:
    # Clause ``masquerade.cluster-ip.pod-source-preserved``.
    match kind:
        case MasqueradePolicy.ALWAYS:
            return [Rule((*addressed, _MARK_MASQUERADE), comment)]
        case MasqueradePolicy.OFF_CLUSTER if elsewhere := from_pods(context.detector, negated=True):
            return [Rule((*addressed, *elsewhere, _MARK_MASQUERADE), comment)]
    return []


def _target(endpoint: PoolEndpoint, identity: str) -> NamedEndpoint:
    text = format_socket(endpoint.address, endpoint.port)
    return NamedEndpoint(endpoint, text, names.ENDPOINT_PREFIX + names.name_hash(identity + text))
