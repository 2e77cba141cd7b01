"""One write of node a's proxy is refused just when an endpoint of a UDP Service leaves; nothing else changes."""

from kproxy.conformance.case import *  # noqa: F403
from kproxy.model.network import Family, Protocol
from kproxy.universes.schedule import *  # noqa: F403

SCHEDULE = Schedule(
    seed=1,
    family=Family.IPV4,
    changes=(
        TimedChange(
            at=0.0,
            step=Apply(
                CaseService(
                    name="dns",
                    ports=(Port(number=53, protocol=Protocol.UDP),),
                    endpoints=(CaseEndpoint(on="a1"),),
                )
            ),
        ),
        TimedChange(
            at=10.0,
            step=Apply(
                CaseService(
                    name="dns",
                    ports=(Port(number=53, protocol=Protocol.UDP),),
                    endpoints=(CaseEndpoint(on="b1"),),
                )
            ),
        ),
        TimedChange(at=400.0, step=SetZone(node="b", zone="zone-c")),
    ),
    faults=(TimedFault(at=9.5, seconds=2.0, kind=FaultKind.WRITES_REFUSED, node="a"),),
    probes=(
        TimedProbe(
            at=60.0, sender=Vantage(VantageKind.POD, "a", "a2"), to=Target(TargetKind.CLUSTER_IP, "dns")
        ),
    ),
    flows=(
        TimedFlow(
            at=6.0,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "dns"),
            pause=1.0,
        ),
        TimedFlow(
            at=6.0,
            sender=Vantage(VantageKind.POD, "b", "b2"),
            to=Target(TargetKind.CLUSTER_IP, "dns"),
            pause=1.0,
        ),
    ),
)
