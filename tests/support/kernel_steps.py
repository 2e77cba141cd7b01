"""Cases that need a kernel, and the simulator's reasons not to run them: for the tests of every mode."""

from collections.abc import Iterator

from kproxy.conformance.case import (
    AllowWrites,
    Case,
    CheckHealth,
    CheckLatency,
    CheckProxy,
    CheckTraces,
    CleanUp,
    ContinuousProbe,
    DelayWrites,
    DuringWatchFault,
    FailWrites,
    Feature,
    FlushRules,
    Open,
    OutOfWindow,
    Ping,
    Probe,
    ReadSysctl,
    ReleasePort,
    Reopen,
    Restart,
    Send,
    StopListening,
    TakePort,
    UnrelatedEntries,
    Wait,
)

NEEDS_KERNEL = {
    *(
        Open,
        Send,
        Reopen,
        Ping,
        CheckHealth,
        CheckProxy,
        ReadSysctl,
        StopListening,
        OutOfWindow,
        Wait,
        Restart,
    ),
    *(ContinuousProbe, FailWrites, DelayWrites, AllowWrites, DuringWatchFault, UnrelatedEntries),
    *(CheckLatency, FlushRules, CleanUp, CheckTraces, TakePort, ReleasePort),
}


def needs_kernel(case: Case, mode: str = "iptables") -> Iterator[str]:
    if Feature.LOCALHOST_NODE_PORTS in case.features and mode != "iptables":
        yield "the simulator has no sockets"
    if case.features & {Feature.FORWARD_POLICY, Feature.INPUT_POLICY}:
        yield "the simulator has no rules of others"
    if Feature.EXTERNAL_IPS_OF_NODES in case.features:
        yield "the simulator has no routing"
    for step in case.steps:
        if isinstance(step, Probe) and step.sender.spoofs_node:
            yield "the simulator has no routing"
        elif type(step) in NEEDS_KERNEL:
            yield f"the simulator has no {type(step).__name__}: it "
