"""Mutants of internalTrafficPolicy."""

from __future__ import annotations

import msgspec

from kproxy.linux.netfilter.rules import End, Reject
from kproxy.proxy import snapshot
from kproxy.proxy.backends.iptables import names
from kproxy.proxy.backends.ipvs import names as ipvs_names
from kproxy.proxy.backends.ipvs.names import IpSet
from kproxy.proxy.backends.xtables.rules import TableName
from kproxy.proxy.plan import Pool, PoolEndpoint, PoolScope
from kproxy.proxy.snapshot import TrafficPolicy
from tests.mutants.mutant import Function, Patch, in_ipvs, mutant
from tests.mutants.patches.iptables import FILTER, Rules, left_out, with_target
from tests.mutants.patches.ipvs import left_out_of_chain, without_members
from tests.mutants.patches.objects import with_services
from tests.mutants.patches.settings import Ends


def _swapped(service: snapshot.ServiceInfo) -> snapshot.ServiceInfo:
    return msgspec.structs.replace(
        service, internal_policy=service.external_policy, external_policy=service.internal_policy
    )


def _falls_back(local_pool: Function) -> Function:
    """A node without an endpoint of its own uses those of other nodes."""

    def pool(endpoints: Ends, node: str) -> Pool:
        found = tuple(endpoints)
        own: Pool = local_pool(found, node)
        others = (PoolEndpoint(e.address, e.port, may_be_here=False) for e in found if e.ready)
        return own if own.endpoints else Pool(PoolScope.LOCAL, tuple(others))

    return pool


MUTANTS = (
    mutant(
        "local-policy.internal-drop",
        "A cluster IP of policy Local without an endpoint here is not dropped.",
        *left_out(Rules(chain=names.SERVICES, target=End.DROP, table=FILTER)),
        clauses="internal-policy.local.drop-without-local-endpoint",
    ),
    mutant(
        "local-policy.internal-refusal",
        "A cluster IP of policy Local without an endpoint here is refused instead of dropped.",
        *with_target(Rules(chain=names.SERVICES, target=End.DROP, table=FILTER), Reject()),
        clauses="internal-policy.local.drop-without-local-endpoint",
    ),
    mutant(
        "policy.internal-ignored",
        "internalTrafficPolicy Local is not obeyed.",
        with_services(
            lambda service: msgspec.structs.replace(service, internal_policy=TrafficPolicy.CLUSTER)
        ),
        clauses="internal-policy.local.same-node internal-policy.local.drop-without-local-endpoint",
    ),
    mutant(
        "policy.swapped",
        "Each traffic policy binds the addresses of the other.",
        with_services(_swapped),
        clauses="internal-policy.external-addresses-exempt external-policy.cluster-ip-exempt",
    ),
    mutant(
        "local-policy.falls-back",
        "Under policy Local a node without endpoints uses those of others.",
        Patch("kproxy.proxy.plan.frontends:local_pool", _falls_back),
        clauses="internal-policy.local.drop-without-local-endpoint "
        "external-policy.local.drop-without-local-endpoint",
    ),
    in_ipvs(
        "ipvs.local-policy.internal-silence",
        "A cluster IP of policy Local without an endpoint here is not dropped.",
        left_out_of_chain(TableName.MANGLE, ipvs_names.TRAFFIC_POLICY, End.DROP, IpSet.CLUSTER_IP_UNANSWERED),
        clauses="internal-policy.local.drop-without-local-endpoint",
    ),
    in_ipvs(
        "ipvs.set.cluster-ip-no-local",
        "Nothing is put into KUBE-CLUSTER-IP-NO-LOCAL.",
        without_members(IpSet.CLUSTER_IP_UNANSWERED),
        clauses="internal-policy.local.drop-without-local-endpoint",
    ),
)
