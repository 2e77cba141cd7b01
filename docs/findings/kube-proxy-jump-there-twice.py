"""Memory is short on a node for six seconds, while a Service changes twice; all is well again for a minute before the cleanup."""

from kproxy.conformance.case import *  # noqa: F403
from kproxy.model.network import Family
from kproxy.universes.schedule import *  # noqa: F403

SCHEDULE = Schedule(
    seed=1,
    family=Family.IPV4,
    changes=(
        TimedChange(at=0.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(
            at=21.0,
            step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"), CaseEndpoint(on="b1")))),
        ),
        TimedChange(at=24.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
    ),
    faults=(TimedFault(at=20.0, seconds=6.0, kind=FaultKind.MEMORY_SHORT, node="a"),),
    probes=(
        TimedProbe(
            at=80.0,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
    ),
)
