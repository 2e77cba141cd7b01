"""Mutants of ipvs mode: its chains, and the members of its sets.  `tests.mutants.ipvs_servers` has the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kproxy.model.network import Family
from kproxy.proxy.backends.ipvs import names
from kproxy.proxy.backends.ipvs.compile import DesiredVirtualServer, IpvsObjects
from kproxy.proxy.backends.ipvs.names import IpSet, set_name
from kproxy.proxy.backends.ipvs.rules import (
    Chains,
    Goto,
    InSet,
    Key,
    MarkKey,
    Match,
    Member,
    Rule,
    Source,
    Target,
    Verdict,
)
from kproxy.proxy.backends.xtables.rules import InInterface, Jump, Masquerade, SourceIsLocal, Table
from tests.mutants.mutant import Function, Patch, Unseen, answering, mutant

in_ipvs = partial(mutant, mode="ipvs")
on_kernel = partial(in_ipvs, needs_kernel=True)

MARK = Jump(names.MARK_MASQUERADE)
IN_GUEST = "tests/uml/guest/ipvs_kernel.py"


def left_out(
    table: Table,
    chain: str,
    target: Target | type[Target] | None = None,
    of: IpSet | None = None,
    having: type[Match] | tuple[type[Match], ...] = (),
) -> Patch:
    """Rules of a chain that are not written: those with this target, that ask this set, with such a match."""

    def goes(rule: Rule) -> bool:
        fits = target is None or rule.target == target
        if isinstance(target, type):
            fits = isinstance(rule.target, target)
        asks = of is None or any(isinstance(match, InSet) and match.set is of for match in rule.matches)
        return fits and asks and (not having or any(isinstance(match, having) for match in rule.matches))

    def wrap(chains: Function) -> Function:
        def edited(*of_writer: object) -> Chains:
            written: Chains = chains(*of_writer)
            kept = tuple(rule for rule in written[table][chain] if not goes(rule))
            return {**written, table: {**written[table], chain: kept}}

        return edited

    return Patch("kproxy.proxy.backends.ipvs.static_rules:_ChainBuilder.chains", wrap)


def in_parts(changed: Callable[[IpvsObjects], IpvsObjects]) -> Patch:
    """Patch that changes the objects of every service port."""
    return Patch(
        "kproxy.proxy.backends.ipvs.desired_state:ipvs_objects", lambda part: lambda *of: changed(part(*of))
    )


def without_members(*sets: IpSet) -> Patch:
    """Patch that adds no member to these sets."""
    return in_parts(
        lambda part: replace(part, members=frozenset(m for m in part.members if m.set not in sets))
    )


def _not_by_mark(part: IpvsObjects) -> IpvsObjects:
    kept: dict[Key, DesiredVirtualServer] = {
        k: v for k, v in part.virtuals.items() if not isinstance(k, MarkKey)
    }
    return replace(part, virtuals=kept)


def _without_own_addresses(used: Function) -> Function:
    return lambda fragment: (
        use for use in used(fragment) if not (isinstance(use, Member) and use.set is IpSet.IPVS_IPS)
    )


MASQUERADE = (
    in_ipvs(
        "ipvs.masquerade.off-cluster",
        "Traffic to cluster IPs that is no pod's keeps its source.",
        left_out(Table.NAT, names.SERVICES, MARK, IpSet.CLUSTER_IP, (Source, InInterface)),
        clauses="masquerade.cluster-ip.outside-rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.external-ip",
        "Traffic to external IPs keeps its source.",
        left_out(Table.NAT, names.SERVICES, MARK, IpSet.EXTERNAL_IP),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.load-balancer",
        "Traffic to load balancer IPs keeps its source.",
        left_out(Table.NAT, names.LOAD_BALANCER, MARK),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.load-balancer-local",
        "Traffic to load balancer IPs is masqueraded under policy Local too.",
        left_out(Table.NAT, names.LOAD_BALANCER, Verdict.RETURN),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    in_ipvs(
        "ipvs.masquerade.node-port",
        "Traffic to TCP node ports keeps its source.",
        left_out(Table.NAT, names.NODE_PORT, MARK, IpSet.NODE_PORT_TCP),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.node-port-udp",
        "Traffic to UDP node ports keeps its source.",
        left_out(Table.NAT, names.NODE_PORT, MARK, IpSet.NODE_PORT_UDP),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.node-port-local",
        "Traffic to node ports is masqueraded under policy Local too.",
        left_out(Table.NAT, names.NODE_PORT, Verdict.RETURN),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    in_ipvs(
        "ipvs.masquerade.node-port-dispatch",
        "The chain of node ports is not gone through.",
        left_out(Table.NAT, names.SERVICES, Jump(names.NODE_PORT)),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.mark",
        "What is to be masqueraded is not marked.",
        left_out(Table.NAT, names.MARK_MASQUERADE),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.postrouting",
        "Nothing is masqueraded.",
        left_out(Table.NAT, names.POSTROUTING, Masquerade),
        clauses="masquerade.external-policy-cluster.rewritten masquerade.hairpin.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.shortcut",
        "What the node sends by a shortcut keeps its source.",
        left_out(Table.NAT, names.POSTROUTING, Masquerade, having=SourceIsLocal),
        clauses="external-policy.local.host-reaches-all-endpoints",
    ),
    in_ipvs(
        "ipvs.detector.ignored",
        "Pods are not told from others.",
        Patch("kproxy.proxy.backends.ipvs.static_rules:_from_pods", answering(())),
        clauses="masquerade.cluster-ip.outside-rewritten external-policy.local.pods-reach-all-endpoints",
    ),
)

POLICY = (
    in_ipvs(
        "ipvs.local-policy.internal-silence",
        "A cluster IP of policy Local without an endpoint here is not dropped.",
        left_out(Table.MANGLE, names.TRAFFIC_POLICY, Verdict.DROP, IpSet.CLUSTER_IP_UNANSWERED),
        clauses="internal-policy.local.drop-without-local-endpoint",
    ),
    in_ipvs(
        "ipvs.local-policy.external-silence",
        "External traffic of policy Local without an endpoint here is not dropped.",
        left_out(Table.MANGLE, names.TRAFFIC_POLICY, Verdict.DROP, IpSet.EXTERNAL_UNANSWERED),
        clauses="external-policy.local.drop-without-local-endpoint",
    ),
    in_ipvs(
        "ipvs.shortcut.host",
        "The node has no shortcut.",
        left_out(Table.MANGLE, names.TRAFFIC_POLICY, Goto, having=SourceIsLocal),
        clauses="external-policy.local.host-reaches-all-endpoints",
    ),
    in_ipvs(
        "ipvs.shortcut.pods",
        "Pods have no shortcut.",
        left_out(Table.MANGLE, names.TRAFFIC_POLICY, Goto, having=(Source, InInterface)),
        clauses="external-policy.local.pods-reach-all-endpoints",
    ),
    in_ipvs(
        "ipvs.shortcut.mark",
        "Who may take a shortcut is not marked.",
        left_out(Table.MANGLE, names.SHORTCUT),
        clauses="external-policy.local.pods-reach-all-endpoints",
    ),
    in_ipvs(
        "ipvs.shortcut.servers",
        "There are no virtual servers by mark.",
        in_parts(_not_by_mark),
        clauses="external-policy.local.pods-reach-all-endpoints",
    ),
)

FIREWALL = (
    in_ipvs(
        "ipvs.source-ranges.arriving",
        "Ranges do not bind packets that arrive.",
        left_out(Table.FILTER, names.PROXY_FIREWALL),
        clauses="source-ranges.outside-dropped",
    ),
    in_ipvs(
        "ipvs.source-ranges.own-packets",
        "Ranges do not bind the node's own packets.",
        left_out(Table.MANGLE, names.IPVS_OUT_FILTER),
        clauses="source-ranges.apply-to-host",
    ),
    on_kernel(
        "ipvs.filter.refusal",
        "Ports that nobody serves are not refused: the node's own sockets answer at cluster IPs.",
        left_out(Table.FILTER, names.IPVS_FILTER, Verdict.REJECT),
        clauses="cluster-ip.undefined-port.not-served",
    ),
    on_kernel(
        "ipvs.invalid",
        "Segments outside the window reach the node's own processes.",
        left_out(Table.FILTER, names.PROXY_FIREWALL, Verdict.DROP),
        clauses="conntrack.invalid-not-leaked",
    ),
)

EMPTY_SETS = {
    IpSet.CLUSTER_IP: "masquerade.cluster-ip.outside-rewritten",
    IpSet.EXTERNAL_IP: "masquerade.external-policy-cluster.rewritten",
    IpSet.LOAD_BALANCER: "masquerade.external-policy-cluster.rewritten",
    IpSet.LOAD_BALANCER_LOCAL: "external-policy.local.local-endpoints-source-preserved",
    IpSet.LOAD_BALANCER_FIREWALL: "source-ranges.outside-dropped",
    IpSet.LOAD_BALANCER_SOURCE_CIDR: "source-ranges.inside-allowed",
    IpSet.LOAD_BALANCER_SOURCE_IP: "source-ranges.apply-to-host source-ranges.inside-allowed",
    IpSet.LOOP_BACK: "masquerade.hairpin.rewritten",
    IpSet.NODE_PORT_TCP: "masquerade.external-policy-cluster.rewritten",
    IpSet.NODE_PORT_LOCAL_TCP: "external-policy.local.local-endpoints-source-preserved",
    IpSet.NODE_PORT_UDP: "masquerade.external-policy-cluster.rewritten",
    IpSet.NODE_PORT_LOCAL_UDP: "external-policy.local.local-endpoints-source-preserved",
    IpSet.NODE_PORT_SCTP: "masquerade.external-policy-cluster.rewritten",
    IpSet.SERVED: "cluster-ip.reaches-ready-endpoint",
    IpSet.CLUSTER_IP_UNANSWERED: "internal-policy.local.drop-without-local-endpoint",
    IpSet.EXTERNAL_UNANSWERED: "external-policy.local.drop-without-local-endpoint",
    IpSet.SHORTCUT: "external-policy.local.pods-reach-all-endpoints",
}
"""Sets that stay empty, and the clauses that this violates."""

SETS = (
    *(
        in_ipvs(
            f"ipvs.set.{which.value.lower()}",
            f"Nothing is put into {set_name(which, Family.IPV4)}.",
            without_members(which),
            clauses=clauses,
        )
        for which, clauses in EMPTY_SETS.items()
    ),
    on_kernel(
        "ipvs.set.ipvs-ips",
        "Nothing is put into KUBE-IPVS-IPS.",
        Patch("kproxy.proxy.backends.ipvs.desired_state:_objects_of", _without_own_addresses),
        clauses="masquerade.cluster-ip.host-rewritten cluster-ip.undefined-port.not-served",
    ),
    in_ipvs(
        "ipvs.set.external-ip-local",
        "External IPs of policy Local are in KUBE-EXTERNAL-IP, which masquerades.",
        in_parts(
            lambda part: replace(
                part,
                members=frozenset(
                    replace(m, set=IpSet.EXTERNAL_IP) if m.set is IpSet.EXTERNAL_IP_LOCAL else m
                    for m in part.members
                ),
            )
        ),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    on_kernel(
        "ipvs.set.health-check-node-port",
        "Health check node ports are not let in.",
        left_out(Table.FILTER, names.NODE_PORT),
        unseen=Unseen(
            "the lab's nodes let everything in",
            f"{IN_GUEST}::test_a_health_check_node_port_is_let_in_though_the_firewall_drops",
        ),
    ),
)

MUTANTS = (*MASQUERADE, *POLICY, *FIREWALL, *SETS)
