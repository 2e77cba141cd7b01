"""Text of steps, targets and lawful outcomes, for findings and reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.conformance.case import (
    AddNodeAddress,
    AddServiceCidr,
    AllowWrites,
    Apply,
    CaseEndpoint,
    CaseService,
    CheckHealth,
    CheckLatency,
    CheckProxy,
    CheckTraces,
    CleanUp,
    ContinuousProbe,
    DelayWrites,
    Delete,
    DuringWatchFault,
    FailWrites,
    FlushRules,
    HealthRequest,
    Lawful,
    Mutation,
    Open,
    OutOfWindow,
    Ping,
    Probe,
    ReachedEndpoint,
    ReadSysctl,
    ReleasePort,
    Reopen,
    Restart,
    SameEndpoint,
    Send,
    SetTaints,
    SetZone,
    StartNodeDeletion,
    Step,
    StopListening,
    SymbolicOutcome,
    TakePort,
    Target,
    UnjudgedAction,
    UnrelatedEntries,
    Wait,
)
from kproxy.conformance.case.steps import HEALTH_PATH
from kproxy.conformance.engine import convergence
from kproxy.conformance.testbed import describe_status, expected_health

NO_TRACES = "nothing more and nothing less"
"""Text of a `CheckTraces` that found no difference."""
SAME_ENTRIES = "each is there, and is the one that it was"


def describe_case_count(number: int) -> str:
    """``1 case``, ``2 cases``."""
    return f"{number} {'case' if number == 1 else 'cases'}"


def describe_step(step: Step) -> str:
    """Text of a step."""
    match step:
        case Send(flow=flow):
            return f"exchange on held flow {flow!r}"
        case Open(flow=flow, sender=sender, to=to):
            return f"open flow {flow!r}: {sender} -> {describe_target(to)}"
        case Reopen(flow=flow):
            return f"open flow {flow!r} again from the same port"
        case ReadSysctl() | UnrelatedEntries() | CheckLatency() | CheckTraces():
            return _describe_setting(step)
        case CheckHealth() | CheckProxy():
            return _describe_checkup(step)
        case Ping(sender=sender, to=to):
            return f"ping: {sender} -> {describe_target(to)}"
        case Probe(sender=sender, to=to) | ContinuousProbe(sender=sender, to=to):
            pauses = "" if isinstance(step, Probe) else "without a pause: "
            return f"{pauses}{sender} -> {describe_target(to)}"
        case _:
            return _describe_event(step)


def _describe_setting(step: ReadSysctl | UnrelatedEntries | CheckLatency | CheckTraces) -> str:
    match step:
        case CheckLatency():
            return "how long changes that come alone have taken in this lab"
        case ReadSysctl():
            return f"node {step.node}: sysctl {step.name}"
        case CheckTraces(node=node):
            return f"node {node}: what it has, compared with before the proxy's start"
        case UnrelatedEntries():
            return (
                f"node {step.node}: connection tracking entries of others beside those of {step.service.name}"
            )


def _describe_checkup(step: HealthRequest) -> str:
    if isinstance(step, CheckProxy):
        return f"health of the proxy: {step.sender} -> {step.path} of node {step.node}"
    path = "" if step.path == HEALTH_PATH else f", path {step.path}"
    return f"health check: {step.sender} -> {describe_target(step.to)}{path}"


def _describe_event(step: Mutation | UnjudgedAction | Wait) -> str:
    """Text of a step that is not judged."""
    match step:
        case Apply(services=services):
            return "apply " + "; ".join(map(_describe_service, services))
        case Delete(service=service, keep_slices=keep):
            return f"delete Service {service.name}{' but not its EndpointSlices' if keep else ''}"
        case SetZone() | SetTaints() | StartNodeDeletion():
            return f"node {step.node}: {_describe_node(step)}"
        case AddServiceCidr():
            return "add a second ServiceCIDR"
        case AddNodeAddress(node=node):
            return f"node {node} gains an address on the node network"
        case Restart():
            return _describe_restart(step)
        case FlushRules() | CleanUp() | TakePort() | ReleasePort():
            return f"node {step.node}: {_describe_node_fault(step)}"
        case _:
            return _describe_fault(step)


def _describe_node(step: SetZone | SetTaints | StartNodeDeletion) -> str:
    match step:
        case SetZone(zone=zone):
            return f"zone {zone}" if zone else "no zone"
        case SetTaints(keys=keys):
            return f"taints {', '.join(keys)}" if keys else "no taints"
        case StartNodeDeletion():
            return "its object is being deleted"


def _describe_restart(restart: Restart) -> str:
    configuration = (
        f" with masqueradeBit {restart.masquerade_bit}" if restart.masquerade_bit is not None else ""
    )
    slices = f", without EndpointSlices for {restart.without_slices:g} s" if restart.without_slices else ""
    between = f"; meanwhile {describe_step(restart.while_down)}" if restart.while_down else ""
    return f"kill the proxy of node {restart.node} and start it again{configuration}{slices}{between}"


def _describe_node_fault(step: FlushRules | CleanUp | TakePort | ReleasePort) -> str:
    match step:
        case FlushRules(what=what):
            return f"another program removes {what.value}"
        case CleanUp():
            return "the proxy is killed, and what it left is removed by its own means"
        case TakePort(service=service):
            return f"a program listens at the health check node port of {service.name}"
        case ReleasePort(service=service):
            return f"no program listens at the health check node port of {service.name} any more"


def _describe_fault(
    step: FailWrites | DelayWrites | AllowWrites | DuringWatchFault | UnjudgedAction | Wait,
) -> str:
    match step:
        case FailWrites(node=node, family=family):
            of = f" of {family.value}" if family else ""
            return f"the kernel refuses what{of} the proxy of node {node} writes"
        case DelayWrites(node=node, seconds=seconds):
            return f"each write of the proxy of node {node} to the kernel begins {seconds:g} s late"
        case AllowWrites(node=node):
            return f"the kernel takes what the proxy of node {node} writes"
        case DuringWatchFault(fault=deaf, changes=changes):
            made = "; ".join(_describe_event(change) for change in changes)
            return f"while no proxy learns of it, as {deaf.value}: {made}"
        case StopListening(flow=flow, hangs=hangs):
            how = "accepts no more connections, and refuses none" if hangs else "stops listening"
            return f"the endpoint of flow {flow!r} {how}"
        case OutOfWindow(flow=flow):
            return f"the endpoint of flow {flow!r} sends a segment far outside the window"
        case Wait(seconds=seconds):
            return f"let {seconds:g} s pass"


def _describe_service(service: CaseService) -> str:
    endpoints = ", ".join(map(_describe_endpoint, service.endpoints)) or "none"
    return f"Service {service.name} ({service.type.value}; endpoints: {endpoints})"


def _describe_endpoint(endpoint: CaseEndpoint) -> str:
    return f"{endpoint.many} on {endpoint.on}" if endpoint.many else endpoint.on


def describe_target(to: Target) -> str:
    """Text of a target."""
    kind = to.kind.name.lower().replace("_", " ")
    service = to.service
    node = f" of {to.node}" if to.node else ""
    port = f", port {to.port!r}" if to.port else ""
    return " ".join(filter(None, (service, f"{kind}{node}{port}")))


def describe_lawful(lawful: Lawful) -> str:
    """Text of a set of lawful outcomes."""
    return " or ".join(sorted(map(_describe_outcome, lawful)))


def _describe_outcome(seen: SymbolicOutcome) -> str:
    if isinstance(seen, ReachedEndpoint):
        who = f"one of {seen.many} endpoints on {seen.on}" if seen.many else seen.on
        return f"delivered to {who} (source {seen.source.value})"
    return seen.value


def describe_expectation(step: Step) -> str:
    """Text of everything a step expects; empty for one that is not judged."""
    match step:
        case Send(expect=expect):
            return expect.value if isinstance(expect, SameEndpoint) else describe_lawful(expect)
        case Probe() | ContinuousProbe() | Ping() | Open() | Reopen():
            return "; ".join((describe_lawful(step.expect), *_probe_conditions(step)))
        case CheckHealth(expect=count, count_in=count_in):
            return expected_health(count, count_in)
        case CheckProxy(expect=status):
            return describe_status(status)
        case CheckLatency():
            return convergence.latency_objective()
        case ReadSysctl(expect=expect):
            return expect
        case UnrelatedEntries() | CheckTraces():
            return SAME_ENTRIES if isinstance(step, UnrelatedEntries) else NO_TRACES
        case _:
            return ""


def _probe_conditions(step: Step) -> Iterator[str]:
    """Texts of a probe's conditions beyond its outcomes."""
    if isinstance(step, ContinuousProbe):
        yield "at once, by every first packet"
    if not isinstance(step, Probe):
        return
    if step.spread:
        yield "every one of them"
    if step.even:
        yield "each as often as the others"
    if step.sticky_group:
        yield "the same endpoint each time"
    if step.rebalances:
        yield "for some client another endpoint than before"
    if step.source_port_changed:
        yield "from another source port for some"
    if step.payload_bytes:
        yield f"all of {step.payload_bytes} bytes"
    if step.mark:
        yield f"leaving the node with mark {step.mark:#x}"
    yield from _packet_traits(step)


def _packet_traits(step: Probe) -> Iterator[str]:
    """Texts of special properties of its packets."""
    if step.first_packet_only:
        yield "its first packet answered"
    if step.init_chunk_only:
        yield "the one packet that begins an association, made by hand"
    if step.multihomed:
        yield "listing all addresses of the sender"
