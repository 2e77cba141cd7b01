"""An EndpointSlice with a port without a number comes to a Service that is served.  Another Service is created afterwards."""

from kproxy.conformance.case import *  # noqa: F403
from kproxy.model.network import Family
from kproxy.universes.schedule import *  # noqa: F403

SCHEDULE = Schedule(
    seed=1,
    family=Family.IPV4,
    changes=(
        TimedChange(
            at=0.0,
            step=Apply(
                CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)),
            ),
        ),
        TimedChange(
            at=20.0,
            step=Apply(
                CaseService(
                    name="odd",
                    endpoints=(CaseEndpoint(on="a2"),),
                    unnumbered_slice_port=True,
                ),
            ),
        ),
        TimedChange(
            at=30.0,
            step=Apply(
                CaseService(name="api", endpoints=(CaseEndpoint(on="a2"),)),
            ),
        ),
    ),
    probes=(
        TimedProbe(
            at=10.0,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
        TimedProbe(
            at=40.0,
            sender=Vantage(VantageKind.POD, "a", "a1"),
            to=Target(TargetKind.CLUSTER_IP, "api"),
        ),
    ),
)
