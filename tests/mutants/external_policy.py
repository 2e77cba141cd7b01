"""Mutants of externalTrafficPolicy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from kproxy.linux.netfilter.patterns import FieldName
from kproxy.linux.netfilter.rules import End, Goto, Jump, Masquerade, Reject
from kproxy.model.network import Protocol
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.ipvs import names as ipvs_names
from kproxy.proxy.backends.ipvs.compile import DesiredVirtualServer, IpvsObjects
from kproxy.proxy.backends.ipvs.names import IpSet
from kproxy.proxy.backends.ipvs.rules import Key, MarkKey
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import Frontend, MasqueradePolicy
from kproxy.proxy.snapshot import TrafficPolicy
from tests.mutants.mutant import Function, Patch, in_ipvs, mutant
from tests.mutants.patches.iptables import EXTERNAL, FILTER, MARK, Rules, left_out, with_target
from tests.mutants.patches.ipvs import in_parts, left_out_of_chain, without_members
from tests.mutants.patches.objects import with_services

TO_ALL_ENDPOINTS = Jump("KUBE-SVC-")


def _local_rewritten(external: Function) -> Function:
    def frontend(*of: Any) -> Frontend:  # noqa: ANN401
        found: Frontend = external(*of)
        return (
            found
            if found.shortcut is None
            else msgspec.structs.replace(found, masquerade=MasqueradePolicy.ALWAYS)
        )

    return frontend


def _local_by_connections(external: Function) -> Function:
    """External policy Local binds TCP, and no other protocol."""

    def frontend(port: Any, *of: Any) -> Frontend:  # noqa: ANN401
        found: Frontend = external(port, *of)
        if port.port.protocol is Protocol.TCP or found.shortcut is None:
            return found
        return msgspec.structs.replace(
            found, pool=found.shortcut, shortcut=None, masquerade=MasqueradePolicy.ALWAYS
        )

    return frontend


def _local_by_node_ports(external: Function) -> Function:
    """External policy Local binds Services that have node ports, and no others."""

    def frontend(port: Any, *of: Any) -> Frontend:  # noqa: ANN401
        found: Frontend = external(port, *of)
        if port.port.node_port is not None or found.shortcut is None:
            return found
        return msgspec.structs.replace(
            found, pool=found.shortcut, shortcut=None, masquerade=MasqueradePolicy.ALWAYS
        )

    return frontend


def _not_by_mark(part: IpvsObjects) -> IpvsObjects:
    kept: dict[Key, DesiredVirtualServer] = {
        k: v for k, v in part.virtuals.items() if not isinstance(k, MarkKey)
    }
    return replace(part, virtuals=kept)


MUTANTS = (
    mutant(
        "local-policy.external-drop",
        "External traffic of policy Local without an endpoint here is not dropped.",
        *left_out(Rules(chain=names.EXTERNAL_SERVICES, target=End.DROP, table=FILTER)),
        clauses="external-policy.local.drop-without-local-endpoint",
    ),
    mutant(
        "local-policy.external-refusal",
        "External traffic of policy Local without an endpoint here is refused instead of dropped.",
        *with_target(Rules(chain=names.EXTERNAL_SERVICES, target=End.DROP, table=FILTER), Reject()),
        clauses="external-policy.local.drop-without-local-endpoint",
    ),
    mutant(
        "shortcut.pods",
        "Under external policy Local pods are treated as if outside.",
        *left_out(Rules(chain=EXTERNAL, target=TO_ALL_ENDPOINTS, having=(FieldName.SOURCE,))),
        clauses="external-policy.local.pods-reach-all-endpoints",
    ),
    mutant(
        "shortcut.host",
        "Under external policy Local the node itself is treated as if outside.",
        *left_out(Rules(chain=EXTERNAL, target=TO_ALL_ENDPOINTS, having=(FieldName.SOURCE_TYPE,))),
        clauses="external-policy.local.host-reaches-all-endpoints",
    ),
    mutant(
        "shortcut.host-source-kept",
        "Under external policy Local the node's own packets to other nodes' endpoints keep their source.",
        *left_out(Rules(chain=EXTERNAL, target=MARK, having=(FieldName.SOURCE_TYPE,))),
        clauses="external-policy.local.host-reaches-all-endpoints",
    ),
    mutant(
        "policy.external-ignored",
        "externalTrafficPolicy Local is not obeyed.",
        with_services(
            lambda service: msgspec.structs.replace(service, external_policy=TrafficPolicy.CLUSTER)
        ),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    mutant(
        "local-policy.rewritten",
        "Under external policy Local clients are masqueraded.",
        Patch("kproxy.proxy.plan.frontends:_Port._external", _local_rewritten),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    mutant(
        "local-policy.of-connections",
        "External policy Local binds connections, and no datagrams.",
        Patch("kproxy.proxy.plan.frontends:_Port._external", _local_by_connections),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    mutant(
        "local-policy.of-node-ports",
        "External policy Local binds those Services only that have node ports.",
        Patch("kproxy.proxy.plan.frontends:_Port._external", _local_by_node_ports),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    in_ipvs(
        "ipvs.masquerade.load-balancer-local",
        "Traffic to load balancer IPs is masqueraded under policy Local too.",
        left_out_of_chain(TableName.NAT, ipvs_names.LOAD_BALANCER, End.RETURN),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    in_ipvs(
        "ipvs.masquerade.node-port-local",
        "Traffic to node ports is masqueraded under policy Local too.",
        left_out_of_chain(TableName.NAT, ipvs_names.NODE_PORT, End.RETURN),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    in_ipvs(
        "ipvs.masquerade.shortcut",
        "What the node sends by a shortcut keeps its source.",
        left_out_of_chain(TableName.NAT, ipvs_names.POSTROUTING, Masquerade, having=FieldName.SOURCE_TYPE),
        clauses="external-policy.local.host-reaches-all-endpoints",
    ),
    in_ipvs(
        "ipvs.local-policy.external-silence",
        "External traffic of policy Local without an endpoint here is not dropped.",
        left_out_of_chain(TableName.MANGLE, ipvs_names.EXTERNAL_POLICY, End.DROP, IpSet.EXTERNAL_UNANSWERED),
        clauses="external-policy.local.drop-without-local-endpoint",
    ),
    in_ipvs(
        "ipvs.shortcut.host",
        "The node has no shortcut.",
        left_out_of_chain(TableName.MANGLE, ipvs_names.EXTERNAL_POLICY, Goto, having=FieldName.SOURCE_TYPE),
        clauses="external-policy.local.host-reaches-all-endpoints",
    ),
    in_ipvs(
        "ipvs.shortcut.pods",
        "Pods have no shortcut.",
        left_out_of_chain(
            TableName.MANGLE, ipvs_names.EXTERNAL_POLICY, Goto, having=(FieldName.SOURCE, FieldName.IN)
        ),
        clauses="external-policy.local.pods-reach-all-endpoints",
    ),
    in_ipvs(
        "ipvs.shortcut.mark",
        "Who may take a shortcut is not marked.",
        left_out_of_chain(TableName.MANGLE, ipvs_names.SHORTCUT),
        clauses="external-policy.local.pods-reach-all-endpoints",
    ),
    in_ipvs(
        "ipvs.shortcut.servers",
        "There are no virtual servers by mark.",
        in_parts(_not_by_mark),
        clauses="external-policy.local.pods-reach-all-endpoints",
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
    in_ipvs(
        "ipvs.set.load-balancer-local",
        "Nothing is put into KUBE-LOAD-BALANCER-LOCAL.",
        without_members(IpSet.LOAD_BALANCER_LOCAL),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    in_ipvs(
        "ipvs.set.node-port-local-tcp",
        "Nothing is put into KUBE-NODE-PORT-LOCAL-TCP.",
        without_members(IpSet.NODE_PORT_LOCAL_TCP),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    in_ipvs(
        "ipvs.set.node-port-local-udp",
        "Nothing is put into KUBE-NODE-PORT-LOCAL-UDP.",
        without_members(IpSet.NODE_PORT_LOCAL_UDP),
        clauses="external-policy.local.local-endpoints-source-preserved",
    ),
    in_ipvs(
        "ipvs.set.external-no-local",
        "Nothing is put into KUBE-EXTERNAL-NO-LOCAL.",
        without_members(IpSet.EXTERNAL_UNANSWERED),
        clauses="external-policy.local.drop-without-local-endpoint",
    ),
    in_ipvs(
        "ipvs.set.local-shortcut",
        "Nothing is put into KUBE-LOCAL-SHORTCUT.",
        without_members(IpSet.SHORTCUT),
        clauses="external-policy.local.pods-reach-all-endpoints",
    ),
)
