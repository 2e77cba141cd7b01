"""Plan: what this node must do, in terms of no backend. Snapshot in, Plan out.

Sits between `kproxy.proxy.snapshot` (endpoints merged per service port) and the backends, which turn a `Plan`
into rules and decide no policy of their own. Pure: reasons are returned in `Plan.notes`.

::

    snapshot, current = None, None                   # one of each per family
    ...                                              # at each change of cluster or settings:
    snapshot = normalise(cluster, Family.IPV4, snapshot)
    current = make_plan(snapshot, settings, current)

With the previous plan as an argument, only Services whose `kproxy.proxy.snapshot.ServiceInfo` is another
object cost work. A `ServicePlan` equal to the one before is the *same object*; when all are, ``services`` is
the same tuple; when the whole plan is, the plan is the same object.
"""

from kproxy.proxy.plan.planner import make_plan
from kproxy.proxy.plan.values import (
    DetectByCIDR,
    DetectByInterface,
    DetectByInterfacePrefix,
    Exposure,
    Frontend,
    FrontendKey,
    HealthCheck,
    LocalDetector,
    MasqueradePolicy,
    NodePorts,
    OnEmpty,
    Plan,
    PlanSettings,
    Pool,
    PoolEndpoint,
    PoolScope,
    ServicePlan,
)
from kproxy.proxy.snapshot import Note, ServicePortName

__all__ = [
    "DetectByCIDR",
    "DetectByInterface",
    "DetectByInterfacePrefix",
    "Exposure",
    "Frontend",
    "FrontendKey",
    "HealthCheck",
    "LocalDetector",
    "MasqueradePolicy",
    "NodePorts",
    "Note",
    "OnEmpty",
    "Plan",
    "PlanSettings",
    "Pool",
    "PoolEndpoint",
    "PoolScope",
    "ServicePlan",
    "ServicePortName",
    "make_plan",
]
