"""A load balancer with source ranges is deleted, its EndpointSlice 2 s later; a client outside the ranges sends all the time.  A write takes 50 ms."""

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
                CaseService(
                    name="web",
                    type=Type.LOAD_BALANCER,
                    endpoints=(CaseEndpoint(on="a1"),),
                    vips=(Vip(),),
                    source_ranges=("client",),
                )
            ),
        ),
        TimedChange(
            at=20.0,
            step=Delete(
                CaseService(
                    name="web",
                    type=Type.LOAD_BALANCER,
                    endpoints=(CaseEndpoint(on="a1"),),
                    vips=(Vip(),),
                    source_ranges=("client",),
                )
            ),
            lag=2.0,
        ),
    ),
    faults=(TimedFault(at=19.0, seconds=40.0, kind=FaultKind.WRITES_SLOW, node="a", pause=0.05),),
    probes=(
        TimedProbe(
            at=10.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=20.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=21.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=21.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=22.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=22.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=23.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=23.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=24.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=24.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=25.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=25.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=26.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=26.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=27.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=27.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=28.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=28.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=29.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=29.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=30.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=30.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=31.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=31.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=32.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=32.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=33.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=33.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=34.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=34.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=35.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=35.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=36.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=36.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=37.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=37.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=38.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=38.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=39.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=39.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=40.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=40.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=41.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=41.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=42.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=42.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=43.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=43.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=44.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=44.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=45.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=45.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=46.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=46.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=47.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=47.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=48.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=48.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=49.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=49.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=50.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=50.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=51.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=51.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=52.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=52.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=53.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=53.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=54.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=54.5,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
        TimedProbe(
            at=55.0,
            sender=Vantage(VantageKind.ROUTED, "a", "remote"),
            to=Target(TargetKind.VIP, "web"),
        ),
    ),
)
