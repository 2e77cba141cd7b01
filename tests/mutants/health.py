"""Mutants of health check node ports and of the proxy's own health."""

from __future__ import annotations

from typing import Any

import msgspec

from kproxy.linux.netfilter.rules import End
from kproxy.linux.node_addresses import AddressMonitor
from kproxy.model.network import Family
from kproxy.proxy import snapshot
from kproxy.proxy.backends.iptables import names
from tests.mutants.mutant import Function, Patch, answering, in_ipvs, instead, mutant
from tests.mutants.patches.iptables import FILTER, Rules, left_out


def _serving_here(service: snapshot.ServiceInfo, node: str) -> int:
    found = (e for port in service.ports for e in port.endpoints if e.node == node and e.serving)
    return len({endpoint.address for endpoint in found})


def _terminating_never(service: snapshot.ServiceInfo, node: str) -> int:
    here = (e for port in service.ports for e in port.endpoints if e.node == node)
    return len({endpoint.address for endpoint in here if endpoint.ready and not endpoint.terminating})


def _ready_anywhere(service: snapshot.ServiceInfo, _node: str) -> int:
    found = (e for port in service.ports for e in port.endpoints if e.ready)
    return len({endpoint.address for endpoint in found})


def _whatever_is_deleted(eligible: Function) -> Function:
    def judged(node: Any) -> bool:  # noqa: ANN401
        if node is None:
            return False
        stays = msgspec.structs.replace(node.metadata, deletion_timestamp=None)
        return bool(eligible(msgspec.structs.replace(node, metadata=stays)))

    return judged


def _of_every_device(family: Family) -> AddressMonitor:
    return AddressMonitor(family, "none")


def _of_the_first(answer: Function) -> Function:
    def answered(families: Any, *times: float, **node: Any) -> Any:  # noqa: ANN401
        first = {family: state for family, state in families.items() if family is Family.IPV4}
        return answer(first, *times, **node)

    return answered


def _dated_by_the_last_change(take: Function) -> Function:
    def taken(feed: Any) -> Any:  # noqa: ANN401
        if feed.pending is not None:
            feed._applying_since = feed.pending.last
        return take(feed)

    return taken


MUTANTS = (
    mutant(
        "guard.health-checks",
        "Health checks are not accepted where nothing is let in by default.",
        *left_out(Rules(chain=names.NODE_PORTS, target=End.ACCEPT, table=FILTER)),
        clauses="health-check.input-policy-drop.passes",
        needs_kernel=True,
    ),
    mutant(
        "health-check.terminating-count",
        "Terminating endpoints that serve still count for load balancers.",
        Patch("kproxy.proxy.plan.health_checks:_local_ready", instead(_serving_here)),
        clauses="health-check.local-endpoints.told",
        needs_kernel=True,
    ),
    mutant(
        "health-check.terminating-never-count",
        "An endpoint that is called ready while it terminates does not count for load balancers.",
        Patch("kproxy.proxy.plan.health_checks:_local_ready", instead(_terminating_never)),
        clauses="health-check.ready-flag-trusted",
        needs_kernel=True,
    ),
    mutant(
        "health-check.of-all-nodes",
        "A node reports other nodes' endpoints to load balancers too.",
        Patch("kproxy.proxy.plan.health_checks:_local_ready", instead(_ready_anywhere)),
        clauses="health-check.local-endpoints.told",
        needs_kernel=True,
    ),
    mutant(
        "proxy-health.deletion-ignored",
        "That a node's object is being deleted is no reason to send it less.",
        Patch("kproxy.proxy.daemon.http.health:is_eligible", _whatever_is_deleted),
        clauses="proxy-health.leaving-node.told",
        needs_kernel=True,
    ),
    mutant(
        "trouble.always-well",
        "A proxy that cannot write goes on reporting that it is well.",
        Patch("kproxy.proxy.daemon.http.health:_is_stale", answering(value=False)),
        clauses="proxy-health.late.told health-check.late-proxy.told",
        needs_kernel=True,
    ),
    mutant(
        "trouble.one-family-is-well",
        "A proxy reports that it is well when it keeps up with changes of IPv4.",
        Patch("kproxy.proxy.daemon.http.health:_answer", _of_the_first),
        clauses="proxy-health.late.told",
        needs_kernel=True,
    ),
    mutant(
        "trouble.each-change-restarts-the-clock",
        "A proxy that cannot write reports that it is well again after each change that arrives.",
        Patch("kproxy.proxy.daemon.cluster.store:Subscription.take", _dated_by_the_last_change),
        clauses="proxy-health.late.told",
        needs_kernel=True,
    ),
    in_ipvs(
        "ipvs.device-addresses-are-the-nodes",
        "The addresses of kube-ipvs0 count as addresses of the node.",
        Patch("kproxy.proxy.daemon.startup:monitor_addresses", instead(_of_every_device)),
        clauses="health-check.node-port-addresses.bind",
        needs_kernel=True,
    ),
)
