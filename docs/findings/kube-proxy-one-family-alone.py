"""A proxy starts while two programs hold the lock of iptables in turn: its check of IPv4 gets it, that of IPv6 does not."""

from kproxy.conformance.case import *  # noqa: F403
from kproxy.model.network import Family
from kproxy.universes.schedule import *  # noqa: F403

SCHEDULE = Schedule(
    seed=1,
    family=Family.IPV6,
    changes=(
        TimedChange(at=0.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=60.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
    ),
    faults=(
        TimedFault(at=20.0, seconds=2.0, kind=FaultKind.PROXY_KILLED, node="a"),
        TimedFault(at=21.0, seconds=2.0, kind=FaultKind.XTABLES_LOCKED),
        TimedFault(at=22.5, seconds=7.0, kind=FaultKind.XTABLES_LOCKED),
    ),
    probes=(
        TimedProbe(
            at=10.0,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=110.0,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=110.0,
            sender=Vantage(VantageKind.POD, "b", "b2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
    ),
)
