"""Which cases rules in memory cannot show, and how the simulator says so: for the tests of every mode."""

from collections.abc import Iterator

from kproxy.conformance.case import (
    Bystanders,
    Case,
    CheckHealth,
    CheckLatency,
    CheckProxy,
    Deafen,
    FailWrites,
    Feature,
    Hold,
    MendWrites,
    OutOfWindow,
    Ping,
    Probe,
    ReadSysctl,
    Reopen,
    Restart,
    Steady,
    Unheard,
    Use,
    Wait,
)

NEEDS_KERNEL = {
    *(Hold, Use, Reopen, Ping, CheckHealth, CheckProxy, ReadSysctl, Deafen, OutOfWindow, Wait, Restart),
    *(Steady, FailWrites, MendWrites, Unheard, Bystanders, CheckLatency),
}


def needs_kernel(case: Case) -> Iterator[str]:
    if case.features & {Feature.FORWARD_POLICY, Feature.INPUT_POLICY}:
        yield "the simulator has no rules of others"
    if Feature.EXTERNAL_IPS_OF_NODES in case.features:
        yield "the simulator has no routing"
    for step in case.steps:
        if isinstance(step, Probe) and step.sender.claims_to_be_a_node:
            yield "the simulator has no routing"
        elif type(step) in NEEDS_KERNEL:
            yield f"the simulator has no {type(step).__name__}: it "
