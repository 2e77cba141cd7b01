"""Snapshot of the API objects, normalised for one family: a `Cluster` in, a `Snapshot` out.

Sits between `kproxy.model.api` (objects as they are) and `kproxy.proxy.plan` (what one node must do). Here
texts become addresses, enums and numbers, and the endpoints of a service port are merged over its
EndpointSlices. No node's point of view and no policy: that is the plan's. What cannot be used is set aside
with a `Note`; the rest of its Service, and all other Services, are unaffected. Nothing in here opens
anything, logs anything or reads a clock.

::

    snapshot = None                                  # one per family
    ...                                              # at each change:
    snapshot = normalise(cluster, Family.IPV4, snapshot)

`normalise` with the previous snapshot works on what changed only, and what comes out equal is the *same
object* as before.
"""

from kproxy.proxy.snapshot.incremental import changed_keys, normalise
from kproxy.proxy.snapshot.values import (
    EndpointInfo,
    Note,
    ServiceInfo,
    ServicePortInfo,
    ServicePortName,
    Snapshot,
    SnapshotCache,
    TrafficPolicy,
)

__all__ = [
    "EndpointInfo",
    "Note",
    "ServiceInfo",
    "ServicePortInfo",
    "ServicePortName",
    "Snapshot",
    "SnapshotCache",
    "TrafficPolicy",
    "changed_keys",
    "normalise",
]
