"""A conformance case: a value that says what is done and what may be seen, in names only.

No address, no sleep, no loop, no backend and no proxy's name occurs in a case.  The author writes
the lawful answers by hand; a unit test asks the oracle the same questions (double entry).
`kproxy.conformance.bind` gives the names addresses; a testbed carries the steps out.

Every case runs once in each of its ``families``, with Services of its own, beside all others.
Pods, nodes and clients are those of `kproxy.lab.topology`: pods ``a1 a2 a3`` on node ``a``,
``b1 b2 b3`` on node ``b``, an on-link client, a routed one.
"""

from __future__ import annotations

from kproxy.conformance.case.cases import DEFAULT, Case, Feature, Profile, case
from kproxy.conformance.case.lawful import (
    DROPPED,
    MASQUERADED,
    PRESERVED,
    REJECTED,
    RESET,
    UNTOUCHED,
    Lawful,
    ReachedBackend,
    Seen,
    delivered_to,
)
from kproxy.conformance.case.services import (
    Backend,
    Place,
    Policy,
    Port,
    Service,
    Type,
    Vip,
    backend_of,
    pods,
    service,
)
from kproxy.conformance.case.steps import (
    STILL,
    AddServiceCidr,
    Apply,
    Delete,
    Hold,
    OutOfWindow,
    Probe,
    Relabel,
    Restart,
    Step,
    Still,
    Use,
    Wait,
)
from kproxy.conformance.case.targets import (
    Target,
    TargetKind,
    Vantage,
    VantageKind,
    client,
    host,
    loopback_daemon,
    pod,
    remote,
    unallocated,
)

__all__ = [
    "DEFAULT",
    "DROPPED",
    "MASQUERADED",
    "PRESERVED",
    "REJECTED",
    "RESET",
    "STILL",
    "UNTOUCHED",
    "AddServiceCidr",
    "Apply",
    "Backend",
    "Case",
    "Delete",
    "Feature",
    "Hold",
    "Lawful",
    "OutOfWindow",
    "Place",
    "Policy",
    "Port",
    "Probe",
    "Profile",
    "ReachedBackend",
    "Relabel",
    "Restart",
    "Seen",
    "Service",
    "Step",
    "Still",
    "Target",
    "TargetKind",
    "Type",
    "Use",
    "Vantage",
    "VantageKind",
    "Vip",
    "Wait",
    "backend_of",
    "case",
    "client",
    "delivered_to",
    "host",
    "loopback_daemon",
    "pod",
    "pods",
    "remote",
    "service",
    "unallocated",
]
