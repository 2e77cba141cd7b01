"""An endpoint of a TCP Service is not ready for ten seconds; connections to it are in use all the time. A write takes 50 ms."""

from kproxy.conformance.case import *  # noqa: F403
from kproxy.model.network import Family, Protocol
from kproxy.universes.schedule import *  # noqa: F403

SCHEDULE = Schedule(
    seed=1,
    family=Family.IPV4,
    changes=(
        TimedChange(
            at=0.0,
            step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"), CaseEndpoint(on="b2")))),
        ),
        TimedChange(
            at=10.0,
            step=Apply(
                CaseService(
                    name="web",
                    endpoints=(
                        CaseEndpoint(on="b1", ready=False, serving=False, terminating=False),
                        CaseEndpoint(on="b2"),
                    ),
                )
            ),
        ),
        TimedChange(
            at=20.0,
            step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"), CaseEndpoint(on="b2")))),
        ),
    ),
    faults=(TimedFault(at=19.0, seconds=40.0, kind=FaultKind.WRITES_SLOW, node="a", pause=0.05),),
    flows=(
        TimedFlow(
            at=6.0,
            sender=Vantage(VantageKind.POD, "a", "a1"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
            pause=0.02,
        ),
        TimedFlow(
            at=6.0,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
            pause=0.02,
        ),
    ),
)
