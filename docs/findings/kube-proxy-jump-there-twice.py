"""Memory is short on both nodes for 41 s, while a Service's endpoint changes once a second."""

from kproxy.conformance.case import *  # noqa: F403
from kproxy.model.network import Family
from kproxy.universes.schedule import *  # noqa: F403

SCHEDULE = Schedule(
    seed=2,
    family=Family.IPV4,
    changes=(
        TimedChange(at=0.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=21.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=22.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=23.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=24.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=25.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=26.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=27.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=28.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=29.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=30.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=31.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=32.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=33.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=34.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=35.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=36.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=37.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=38.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=39.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=40.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=41.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=42.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=43.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=44.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=45.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=46.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=47.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=48.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=49.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=50.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=51.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=52.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=53.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=54.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=55.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=56.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=57.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=58.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
        TimedChange(at=59.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="b1"),)))),
        TimedChange(at=60.0, step=Apply(CaseService(name="web", endpoints=(CaseEndpoint(on="a1"),)))),
    ),
    faults=(
        TimedFault(at=20.0, seconds=41.0, kind=FaultKind.MEMORY_SHORT, node="a"),
        TimedFault(at=20.001, seconds=41.0, kind=FaultKind.MEMORY_SHORT, node="b"),
    ),
    probes=(
        TimedProbe(
            at=130.0,
            sender=Vantage(VantageKind.POD, "a", "a2"),
            to=Target(TargetKind.CLUSTER_IP, "web"),
        ),
    ),
)
