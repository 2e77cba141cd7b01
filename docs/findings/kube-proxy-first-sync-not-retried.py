"""The proxy of node a starts again while the kernel refuses its writes for three seconds; then nothing changes any more."""

from kproxy.conformance.case import *  # noqa: F403
from kproxy.model.network import Family, Protocol
from kproxy.universes.schedule import *  # noqa: F403

SCHEDULE = Schedule(
    seed=1,
    family=Family.IPV4,
    changes=(
        TimedChange(at=0.0, step=SetZone(node="a", zone="")),
        TimedChange(at=0.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=7.5, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
    ),
    faults=(
        TimedFault(at=7.0, seconds=1.0, kind=FaultKind.PROXY_KILLED, node="a"),
        TimedFault(at=8.15, seconds=3.0, kind=FaultKind.WRITES_REFUSED, node="a"),
    ),
    checks=(
        TimedCheck(at=49.0, sender=Vantage(VantageKind.HOST, "a", "a"), node="a"),
        TimedCheck(at=3500.0, sender=Vantage(VantageKind.HOST, "a", "a"), node="a"),
    ),
    probes=(
        TimedProbe(
            at=6.0, sender=Vantage(VantageKind.POD, "a", "a2"), to=Target(TargetKind.CLUSTER_IP, "web")
        ),
        TimedProbe(
            at=50.0, sender=Vantage(VantageKind.POD, "a", "a2"), to=Target(TargetKind.CLUSTER_IP, "web")
        ),
        TimedProbe(
            at=50.0, sender=Vantage(VantageKind.POD, "b", "b2"), to=Target(TargetKind.CLUSTER_IP, "web")
        ),
        TimedProbe(
            at=3500.0, sender=Vantage(VantageKind.POD, "a", "a2"), to=Target(TargetKind.CLUSTER_IP, "web")
        ),
        TimedProbe(
            at=3700.0, sender=Vantage(VantageKind.POD, "a", "a2"), to=Target(TargetKind.CLUSTER_IP, "web")
        ),
    ),
)
