"""A Service without endpoints gets one; a pod connects before, meanwhile and afterwards.  A write takes 0.2 s."""

from kproxy.conformance.case import *  # noqa: F403
from kproxy.model.network import Family
from kproxy.universes.schedule import *  # noqa: F403

SCHEDULE = Schedule(
    seed=1,
    family=Family.IPV4,
    changes=(
        TimedChange(at=0.0, step=Apply(CaseService(name="web"))),
        TimedChange(at=20.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
    ),
    faults=(TimedFault(at=19.0, seconds=20.0, kind=FaultKind.WRITES_SLOW, node="a", pause=0.2),),
    probes=(
        TimedProbe(
            at=10.0,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=20.1,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=20.2,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=20.3,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=20.4,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=20.5,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=20.6,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=20.7,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=20.8,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=20.9,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=21.0,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=21.1,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=21.2,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=21.3,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=21.4,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=21.5,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=21.6,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=21.7,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=21.8,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=21.9,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=22.0,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=22.1,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=22.2,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=22.3,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=22.4,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=36.0,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
    ),
)
