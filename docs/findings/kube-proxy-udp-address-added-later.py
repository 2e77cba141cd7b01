"""A UDP Service gets a load balancer IP to which a client sends already; nothing else changes."""

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
                    type=Type.LOAD_BALANCER,
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
                    type=Type.LOAD_BALANCER,
                    ports=(Port(number=53, protocol=Protocol.UDP),),
                    endpoints=(CaseEndpoint(on="a1"),),
                    vips=(Vip(),),
                )
            ),
        ),
        TimedChange(at=400.0, step=SetZone(node="b", zone="zone-c")),
    ),
    probes=(
        TimedProbe(at=20.0, sender=Vantage(VantageKind.POD, "a", "a2"), to=Target(TargetKind.VIP, "dns")),
        TimedProbe(at=610.0, sender=Vantage(VantageKind.POD, "a", "a2"), to=Target(TargetKind.VIP, "dns")),
    ),
    flows=(
        TimedFlow(
            at=6.0, sender=Vantage(VantageKind.POD, "a", "a2"), to=Target(TargetKind.VIP, "dns"), pause=1.0
        ),
    ),
)
