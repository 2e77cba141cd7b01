"""A node's link goes down for a fifth of a second, while a Service is created.  Clients use its node port afterwards."""

from kproxy.conformance.case import *  # noqa: F403
from kproxy.model.network import Family
from kproxy.universes.schedule import *  # noqa: F403

SCHEDULE = Schedule(
    seed=1,
    family=Family.IPV6,
    changes=(
        TimedChange(
            at=20.1,
            step=Apply(
                CaseService(name="web", type=Type.NODE_PORT, endpoints=(CaseEndpoint(on="a1"),)),
            ),
        ),
    ),
    faults=(TimedFault(at=20.0, seconds=0.2, kind=FaultKind.LINK_DOWN, node="a"),),
    probes=(
        TimedProbe(
            at=26.0,
            sender=Vantage(VantageKind.ON_LINK, "a", "client"),
            to=Target(TargetKind.NODE_PORT, "web", node="a"),
        ),
        TimedProbe(
            at=45.0,
            sender=Vantage(VantageKind.ON_LINK, "a", "client"),
            to=Target(TargetKind.NODE_PORT, "web", node="a"),
        ),
        TimedProbe(
            at=60.0,
            sender=Vantage(VantageKind.ON_LINK, "a", "client"),
            to=Target(TargetKind.NODE_PORT, "web", node="a"),
        ),
    ),
)
