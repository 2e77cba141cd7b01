"""Cases that a cluster can express, and the reasons why not others. Pure.

By the content of a case alone; what the API server would not store is queried from it (`kproxy.lab.kube.store`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kproxy.conformance.binding.bind import bind_cases
from kproxy.conformance.case import (
    DEFAULT,
    AddNodeAddress,
    AddServiceCidr,
    AllowWrites,
    Case,
    CaseService,
    CheckLatency,
    CheckTraces,
    CleanUp,
    DelayWrites,
    DuringWatchFault,
    FailWrites,
    FlushRules,
    OutOfWindow,
    Ping,
    Probe,
    ReadSysctl,
    ReleasePort,
    Restart,
    SetTaints,
    SetZone,
    StartNodeDeletion,
    Step,
    StopListening,
    TakePort,
    Target,
    TargetKind,
    Type,
    UnrelatedEntries,
    Vantage,
    VantageKind,
)
from kproxy.conformance.testbeds.cluster.proxy_configuration import is_configurable
from kproxy.model.network import Family

_STEPS: dict[type[Step], str] = {
    Restart: "the cluster's proxies are not ours to restart",
    FailWrites: "the cluster's proxies are not ours to disturb",
    DelayWrites: "the cluster's proxies are not ours to disturb",
    AllowWrites: "the cluster's proxies are not ours to disturb",
    FlushRules: "the rules of the cluster's nodes are not ours to remove",
    CleanUp: "the cluster's proxies are not ours to remove",
    CheckTraces: "what the cluster's nodes had before is not known",
    TakePort: "programs that take ports run in a lab only",
    ReleasePort: "programs that take ports run in a lab only",
    DuringWatchFault: "the cluster's API server is not ours to disturb",
    SetZone: "the labels of the cluster's nodes are not ours to change",
    SetTaints: "the taints of the cluster's nodes are not ours to change",
    StartNodeDeletion: "the cluster's nodes are not ours to delete",
    AddServiceCidr: "the cluster's ServiceCIDRs are not ours to change",
    AddNodeAddress: "the addresses of the cluster's nodes are not ours to change",
    CheckLatency: "changes are timed in a lab only",
    ReadSysctl: "the settings of the cluster's kernels are the cluster's",
    UnrelatedEntries: "the connection tracking of the cluster's nodes is the cluster's",
    Ping: "no host of the harness answers pings beyond a cluster's nodes",
    OutOfWindow: "segments out of window are made in a lab only",
}
_TARGETS: dict[TargetKind, str] = {
    TargetKind.NODE_PORT_SECOND: "the cluster's nodes have no second network that is known",
    TargetKind.HEALTH_CHECK_SECOND: "the cluster's nodes have no second network that is known",
    TargetKind.NODE_PORT_ADDED_ADDRESS: "the addresses of the cluster's nodes are not ours to change",
}

_AT_NODES = {TargetKind.NODE_PORT, TargetKind.HEALTH_CHECK}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShape:
    """Inventory of a cluster: families, whether its two nodes are in two zones, whether its kernels have SCTP sockets.

    ``outside``: agents exist outside of the cluster. ``neighbour``: if not, a third node exists, whose host takes the
    role of the lab's on-link client. ``configurable``: the configuration of its proxies may be changed.
    """

    families: tuple[Family, ...] = tuple(Family)
    zones_differ: bool = True
    sctp: bool = True
    neighbour: bool = False
    outside: bool = False
    configurable: bool = False


def case_not_runnable(case: Case, shape: ClusterShape) -> str | None:
    """Reason why a case cannot be expressed in a cluster of this shape; None when it can."""
    return next(_reasons(case, shape), None)


def with_cluster_families(case: Case, shape: ClusterShape) -> Case:
    """The case in those of its families that the cluster has; unchanged where there are none (see `case_not_runnable`)."""
    families = tuple(family for family in case.families if family in shape.families)
    return replace(case, families=families) if families and families != case.families else case


def _reasons(case: Case, shape: ClusterShape) -> Iterator[str]:
    if case.opens_sctp_sockets and not shape.sctp:
        yield "the cluster's kernels have no SCTP sockets"
    if not set(case.families) & set(shape.families):
        yield f"the cluster has no Services of {case.families[0].value}"
    for step in case.steps:
        yield from _of_step(step, shape)
    for service in _services(case):
        yield from _of_service(service, shape)
    if case.profile != DEFAULT:
        if not shape.configurable:
            yield f"the configuration of the cluster's proxies is not ours to change (profile {case.profile.name})"
        elif not is_configurable(case.profile):
            yield f"a cluster's proxies cannot be configured as in a lab (profile {case.profile.name})"


def _of_step(step: Step, shape: ClusterShape) -> Iterator[str]:
    if type(step) in _STEPS:
        yield _STEPS[type(step)]
    sender, to = getattr(step, "sender", None), getattr(step, "to", None)
    if isinstance(sender, Vantage) and isinstance(to, Target):
        yield from _of_sender(sender, to, shape)
    if isinstance(to, Target):
        if to.kind in _TARGETS:
            yield _TARGETS[to.kind]
        if to.kind is TargetKind.UNALLOCATED and to.index:
            yield _STEPS[AddServiceCidr]
        if to.other_family and len(shape.families) == 1:
            yield f"the cluster has Services of {shape.families[0].value} only"
    if isinstance(sender, Vantage) and isinstance(to, Target) and _is_martian(sender, to):
        yield "packets to another machine's loopback address are made in a lab only"
    if isinstance(step, Probe) and step.payload_bytes and step.sender.kind is VantageKind.ROUTED:
        yield "there is no narrow link beyond the nodes that is ours"
    yield from _of_servers(step)


def _of_servers(step: Step) -> Iterator[str]:
    if isinstance(step, Probe) and step.init_chunk_only:
        yield "an SCTP association without a socket is made in a lab only"
    if isinstance(step, StopListening) and step.hangs:
        yield "a server that does not answer is made in a lab only"


def _is_martian(sender: Vantage, to: Target) -> bool:
    return to.kind is TargetKind.LOOPBACK_DAEMON and sender.kind is not VantageKind.HOST


def _of_sender(sender: Vantage, to: Target, shape: ClusterShape) -> Iterator[str]:
    """Reasons against a sender: a third node's own proxy would serve its host's packets, unless sent to another node's address."""
    match sender.kind:
        case VantageKind.SPOOFED:
            yield "a source that is not the sender's own is sent in a lab only"
        case VantageKind.ON_LINK | VantageKind.ROUTED if shape.outside:
            return
        case VantageKind.ROUTED:
            yield "there is no client beyond a router that is ours"
        case VantageKind.ON_LINK if to.kind not in _AT_NODES:
            yield "there is no client outside of the cluster that is ours"
        case VantageKind.ON_LINK if not shape.neighbour:
            yield "there is no third node whose host could be the client outside"
        case _:
            return


def _services(case: Case) -> Iterator[CaseService]:
    """Every form of every Service that it declares."""
    return iter(bind_cases([case])[0].services)


def _of_service(service: CaseService, shape: ClusterShape) -> Iterator[str]:
    if service.outside_service_cidr or service.in_second_service_cidr:
        yield "an API server gives cluster IPs of its own ServiceCIDRs only"
    if service.without_cluster_ip:
        yield "an API server allocates a cluster IP at once"
    if service.type is Type.EXTERNAL_NAME:
        yield "an API server lets no ExternalName Service have a cluster IP"
    if service.incomplete_slice_ports:
        yield "an API server gives every port of a slice a name, and lets no two have one"
    if any(endpoint.leading_zeros for endpoint in service.endpoints):
        yield "an API server lets no slice have addresses with leading zeros"
    if service.legacy_endpoints:
        yield "a controller of the cluster mirrors Endpoints in EndpointSlices"
    if service.dual_stack and len(shape.families) == 1:
        yield f"the cluster has Services of {shape.families[0].value} only"
    if any(endpoint.zones for endpoint in service.endpoints) and not shape.zones_differ:
        yield "both nodes are in one zone, or in none"
