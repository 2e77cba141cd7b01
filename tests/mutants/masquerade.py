"""Mutants of the source address that an endpoint sees."""

from __future__ import annotations

from typing import Any

import msgspec

from kproxy.linux.netfilter.patterns import FieldName
from kproxy.linux.netfilter.rules import Jump, Masquerade, SetMark
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.ipvs import names as ipvs_names
from kproxy.proxy.backends.ipvs.names import IpSet
from kproxy.proxy.backends.ipvs.rules import Member
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import Frontend, MasqueradePolicy
from tests.mutants.mutant import Function, Patch, answering, in_ipvs, mutant
from tests.mutants.patches.iptables import ENDPOINT, EXTERNAL, MARK, POOLS, Rules, left_out, without
from tests.mutants.patches.ipvs import left_out_of_chain, without_members
from tests.mutants.patches.settings import with_settings


def _all_means_local_too(external: Function) -> Function:
    def frontend(port: Any, *of: Any) -> Frontend:  # noqa: ANN401
        found: Frontend = external(port, *of)
        return (
            msgspec.structs.replace(found, masquerade=MasqueradePolicy.ALWAYS)
            if port.settings.masquerade_all
            else found
        )

    return frontend


def _without_own_addresses(used: Function) -> Function:
    return lambda fragment: (
        use for use in used(fragment) if not (isinstance(use, Member) and use.set is IpSet.IPVS_IPS)
    )


MUTANTS = (
    mutant(
        "masquerade.external",
        "Traffic to external addresses and node ports keeps its source.",
        *left_out(Rules(chain=EXTERNAL, target=MARK, lacking=(FieldName.SOURCE_TYPE,))),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    mutant(
        "masquerade.off-cluster",
        "Traffic to cluster IPs that is no pod's keeps its source.",
        *left_out(Rules(chain=POOLS, target=MARK)),
        clauses="masquerade.cluster-ip.outside-rewritten masquerade.cluster-ip.host-rewritten",
    ),
    mutant(
        "masquerade.hairpin",
        "A pod that reaches itself through a Service sees its own address.",
        *left_out(Rules(chain=ENDPOINT, target=MARK)),
        clauses="masquerade.hairpin.rewritten",
    ),
    mutant(
        "masquerade.mark",
        "What is to be masqueraded is not marked.",
        *left_out(Rules(chain=names.MARK_MASQUERADE, target=SetMark)),
        clauses="masquerade.external-policy-cluster.rewritten masquerade.hairpin.rewritten",
    ),
    mutant(
        "masquerade.postrouting",
        "What is marked is not masqueraded.",
        *left_out(Rules(chain=names.POSTROUTING, target=Masquerade)),
        clauses="masquerade.external-policy-cluster.rewritten masquerade.hairpin.rewritten",
    ),
    mutant(
        "masquerade.mark-kept",
        "The mark stays on packets that leave.",
        *left_out(Rules(chain=names.POSTROUTING, target=SetMark)),
        clauses="masquerade.own-mark.cleared",
        needs_kernel=True,
    ),
    mutant(
        "detector.ignored",
        "Pods are not distinguished from other senders: all traffic to cluster IPs is masqueraded.",
        *without(Rules(chain=POOLS, target=MARK), FieldName.SOURCE, FieldName.IN),
        clauses="masquerade.cluster-ip.pod-source-preserved",
    ),
    mutant(
        "configuration.masquerade-all-ignored",
        "masqueradeAll is not obeyed.",
        Patch("kproxy.proxy.plan.frontends:masquerade_of_cluster_ips", with_settings(masquerade_all=False)),
        Patch("kproxy.proxy.plan.planner:masquerade_of_cluster_ips", with_settings(masquerade_all=False)),
        clauses="masquerade.all.cluster-ip-rewritten",
    ),
    mutant(
        "configuration.masquerade-all-local-too",
        "masqueradeAll hides clients from Services of external policy Local.",
        Patch("kproxy.proxy.plan.frontends:_Port._external", _all_means_local_too),
        clauses="masquerade.all.external-local-exempt",
    ),
    in_ipvs(
        "ipvs.masquerade.off-cluster",
        "Traffic to cluster IPs that is no pod's keeps its source.",
        left_out_of_chain(
            TableName.NAT, ipvs_names.SERVICES, MARK, IpSet.CLUSTER_IP, (FieldName.SOURCE, FieldName.IN)
        ),
        clauses="masquerade.cluster-ip.outside-rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.external-ip",
        "Traffic to external IPs keeps its source.",
        left_out_of_chain(TableName.NAT, ipvs_names.SERVICES, MARK, IpSet.EXTERNAL_IP),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.load-balancer",
        "Traffic to load balancer IPs keeps its source.",
        left_out_of_chain(TableName.NAT, ipvs_names.LOAD_BALANCER, MARK),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.node-port",
        "Traffic to TCP node ports keeps its source.",
        left_out_of_chain(TableName.NAT, ipvs_names.NODE_PORT, MARK, IpSet.NODE_PORT_TCP),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.node-port-udp",
        "Traffic to UDP node ports keeps its source.",
        left_out_of_chain(TableName.NAT, ipvs_names.NODE_PORT, MARK, IpSet.NODE_PORT_UDP),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.node-port-dispatch",
        "The chain of node ports is not gone through.",
        left_out_of_chain(TableName.NAT, ipvs_names.SERVICES, Jump(ipvs_names.NODE_PORT)),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.mark",
        "What is to be masqueraded is not marked.",
        left_out_of_chain(TableName.NAT, ipvs_names.MARK_MASQUERADE),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.masquerade.postrouting",
        "Nothing is masqueraded.",
        left_out_of_chain(TableName.NAT, ipvs_names.POSTROUTING, Masquerade),
        clauses="masquerade.external-policy-cluster.rewritten masquerade.hairpin.rewritten",
    ),
    in_ipvs(
        "ipvs.detector.ignored",
        "Pods are not distinguished from other senders.",
        Patch("kproxy.proxy.backends.ipvs.static_rules:from_pods", answering(())),
        clauses="masquerade.cluster-ip.outside-rewritten external-policy.local.pods-reach-all-endpoints",
    ),
    in_ipvs(
        "ipvs.set.ipvs-ips",
        "Nothing is put into KUBE-IPVS-IPS.",
        Patch("kproxy.proxy.backends.ipvs.desired_state:_objects_of", _without_own_addresses),
        clauses="masquerade.cluster-ip.host-rewritten cluster-ip.undefined-port.not-served",
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.set.cluster-ip",
        "Nothing is put into KUBE-CLUSTER-IP.",
        without_members(IpSet.CLUSTER_IP),
        clauses="masquerade.cluster-ip.outside-rewritten",
    ),
    in_ipvs(
        "ipvs.set.external-ip",
        "Nothing is put into KUBE-EXTERNAL-IP.",
        without_members(IpSet.EXTERNAL_IP),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.set.load-balancer",
        "Nothing is put into KUBE-LOAD-BALANCER.",
        without_members(IpSet.LOAD_BALANCER),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.set.loop-back",
        "Nothing is put into KUBE-LOOP-BACK.",
        without_members(IpSet.LOOP_BACK),
        clauses="masquerade.hairpin.rewritten",
    ),
    in_ipvs(
        "ipvs.set.node-port-tcp",
        "Nothing is put into KUBE-NODE-PORT-TCP.",
        without_members(IpSet.NODE_PORT_TCP),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.set.node-port-udp",
        "Nothing is put into KUBE-NODE-PORT-UDP.",
        without_members(IpSet.NODE_PORT_UDP),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
    in_ipvs(
        "ipvs.set.node-port-sctp-hash",
        "Nothing is put into KUBE-NODE-PORT-SCTP-HASH.",
        without_members(IpSet.NODE_PORT_SCTP),
        clauses="masquerade.external-policy-cluster.rewritten",
    ),
)
