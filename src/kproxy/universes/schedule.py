"""Schedules: what happens in a universe, and when. Pure values; times are seconds since the proxies had settled."""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from kproxy.conformance.case import (
    AddNodeAddress,
    AddServiceCidr,
    Apply,
    Case,
    CaseService,
    CheckHealth,
    CheckProxy,
    Delete,
    HealthRequest,
    Open,
    Probe,
    SetTaints,
    SetZone,
    Target,
    Vantage,
)
from kproxy.model.network import Family

CONVERGENCE = 5.0
"""Seconds within which a change must be in effect, once no fault holds (`kproxy.conformance.engine.convergence`)."""

BUSY = 0.5
"""Seconds after a change's first and last write in which flows have their ``busy_pause`` (`TimedFlow`)."""


class FaultKind(enum.Enum):
    """Faults; each lasts from a time for some seconds."""

    API_REFUSES = "the API server refuses every request (503), and all watches are reset"
    WATCHES_STALL = "watches deliver nothing"
    LISTS_STALL = "all watches are reset, and lists are not answered"
    EVENTS_TRICKLE = "watches deliver one event at a time, with pauses"
    WATCHES_RESET = "all watches are reset at once"
    HISTORY_GONE = "all watches are reset while nothing can be read, and older versions are gone (410)"
    LISTS_CUT = (
        "older versions are gone (410), and new lists come one object at a time and are cut at the end"
    )
    PROXY_KILLED = "the proxy is killed, and started again at the end"
    PROXY_RESTARTED = "the proxy is killed and started again, and threads of it are held now and then"
    PROXY_CRASHED = (
        "each write of the proxy to the kernel takes a while; at the end it is killed and started again"
    )
    THREADS_HELD = "threads of the proxy are held now and then, while its others run"
    PROXY_STOPPED = "the proxy is stopped (SIGSTOP), and continued at the end"
    MODE_CHANGED = "the proxy is killed, and runs in another mode until the end"
    PROXY_REPLACED = "the proxy is killed, and the other of two versions is started, where there are two"
    RULES_RELOADED = "another program reloads its own rules of iptables again and again"
    RULES_LOST = (
        "another program loads its own rules of iptables in place of all others, as a firewall at its start"
    )
    WRITES_REFUSED = "the kernel refuses the proxy's writes (ENOBUFS)"
    MEMORY_SHORT = (
        "memory is short: some of the proxy's writes to the kernel, and starts of its tools, fail (ENOMEM)"
    )
    WRITES_SLOW = "each write of the proxy to the kernel takes a while"
    LINK_DOWN = "the node's link is down; at the end its addresses and routes come back"
    XTABLES_LOCKED = "another program holds the lock of iptables"
    CONNTRACK_FULL = "connection tracking takes no more entries"
    CLOCK_STEPS = "the wall clock is set to another time, and back at the end"


class Resource(enum.Enum):
    """Resource that a fault of the API server concerns; the value is the objects' ``kind``."""

    SERVICES = "Service"
    ENDPOINT_SLICES = "EndpointSlice"
    NODES = "Node"


OF_MACHINE = frozenset({FaultKind.XTABLES_LOCKED, FaultKind.CLOCK_STEPS, FaultKind.CONNTRACK_FULL})
"""Faults that all nodes have at once, since they share the guest's clock, lock and limit of connections."""

OF_NODE = frozenset(
    {
        FaultKind.PROXY_KILLED,
        FaultKind.PROXY_RESTARTED,
        FaultKind.PROXY_CRASHED,
        FaultKind.MODE_CHANGED,
        FaultKind.PROXY_REPLACED,
        FaultKind.RULES_RELOADED,
        FaultKind.RULES_LOST,
        FaultKind.PROXY_STOPPED,
        FaultKind.THREADS_HELD,
        FaultKind.WRITES_REFUSED,
        FaultKind.MEMORY_SHORT,
        FaultKind.WRITES_SLOW,
        FaultKind.LINK_DOWN,
    }
)
"""Faults that one node has; those in neither set are the API server's."""

RECOVERY: Mapping[FaultKind, float] = {
    **dict.fromkeys(FaultKind, 65.0),
    FaultKind.PROXY_KILLED: CONVERGENCE,
    FaultKind.PROXY_RESTARTED: CONVERGENCE,
    FaultKind.PROXY_CRASHED: CONVERGENCE,
    FaultKind.MODE_CHANGED: CONVERGENCE,
    FaultKind.PROXY_REPLACED: CONVERGENCE,
    FaultKind.THREADS_HELD: CONVERGENCE,
    FaultKind.PROXY_STOPPED: CONVERGENCE,
    FaultKind.WRITES_SLOW: CONVERGENCE,
    FaultKind.LINK_DOWN: CONVERGENCE,
    FaultKind.CLOCK_STEPS: CONVERGENCE,
    FaultKind.XTABLES_LOCKED: 30.0 + CONVERGENCE,
    FaultKind.RULES_RELOADED: 30.0 + CONVERGENCE,
    FaultKind.RULES_LOST: 30.0 + 5.0 + CONVERGENCE,
    FaultKind.WRITES_REFUSED: 30.0 + CONVERGENCE,
    FaultKind.MEMORY_SHORT: 30.0 + CONVERGENCE,
}
"""Seconds after a fault's end within which everything must be in effect.

A client of the API server comes back after a pause of 30 s at most, doubled by jitter (client-go's reflector). Writes that
failed are tried again after ``syncPeriod``, which is 30 s; as often a proxy looks for its rules, and then waits for 5 s at most
until all tables are lost (``life.canary``). `FaultKind.CONNTRACK_FULL` counts like a fault of the API server: a client's new
connection may have failed, and it comes back after its pause.
"""


ChangeStep = Apply | Delete | SetZone | SetTaints | AddNodeAddress | AddServiceCidr


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedChange:
    """Change of objects; ``lag``: seconds by which EndpointSlices follow their Service, since another controller writes them."""

    at: float
    step: ChangeStep
    lag: float = 0.0

    @property
    def done(self) -> float:
        """Time of its last write."""
        return round(self.at + self.lag, 6)

    def time_of(self, kind: str) -> float:
        """Time at which it writes objects of a kind."""
        return self.done if kind == Resource.ENDPOINT_SLICES.value else self.at


def present_services(changes: Iterable[TimedChange]) -> dict[str, CaseService]:
    """The Services that are there after changes, by name."""
    present: dict[str, CaseService] = {}
    for change in changes:
        match change.step:
            case Apply(services=services):
                present |= {service.name: service for service in services}
            case Delete(service=service):
                del present[service.name]
            case _:
                pass
    return present


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedFault:
    """Fault; ``node``: the one that has it, empty for the API server's and the machine's.

    ``pause``: seconds of each write or event, between two reloads, or of the clock's step, or that a thread is held at most; ``resource``: the only one that a fault of the API server
    concerns, None for all.
    """

    at: float
    seconds: float
    kind: FaultKind
    node: str = ""
    pause: float = 0.0
    resource: Resource | None = None

    @property
    def end(self) -> float:
        """Time at which it ends."""
        return self.at + self.seconds

    @property
    def recovered(self) -> float:
        """Time at which everything must be in effect again."""
        return self.end + RECOVERY[self.kind]

    def concerns(self, node: str) -> bool:
        """True if a node's proxy may lag because of it."""
        return self.node in {"", node}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedProbe:
    """One new connection, or datagram from a new socket."""

    at: float
    sender: Vantage
    to: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedFlow:
    """Connection, or UDP socket that keeps its port, from a time until the end, with an exchange every ``pause`` seconds.

    ``busy_pause``: seconds between two while a change takes effect; 0: ``pause`` then too. A connection that ends is opened again.
    """

    at: float
    sender: Vantage
    to: Target
    pause: float
    busy_pause: float = 0.0

    def open_step(self, number: int) -> Open:
        """Step that opens it, as the flow of that number."""
        return Open(flow=f"flow-{number}", sender=self.sender, to=self.to, expect=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCheck:
    """Request to the health check node port ``to``, or, without one, to ``/healthz`` of a node's proxy."""

    at: float
    sender: Vantage
    node: str
    to: Target | None = None

    @property
    def step(self) -> HealthRequest:
        """Step that sends it, once."""
        if self.to is None:
            return CheckProxy(sender=self.sender, node=self.node, path="/healthz", expect=0, timeout=0.0)
        return CheckHealth(sender=self.sender, to=self.to, expect=None)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """All that happens in a universe, each kind in the order of time."""

    seed: int
    family: Family
    changes: tuple[TimedChange, ...]
    faults: tuple[TimedFault, ...] = ()
    probes: tuple[TimedProbe, ...] = ()
    flows: tuple[TimedFlow, ...] = ()
    checks: tuple[TimedCheck, ...] = ()

    @cached_property
    def case(self) -> Case:
        """The changes and probes as a case, which gives every Service its addresses and ports, and probed ones a listener."""
        return Case(
            id=f"universe.{self.seed}",
            about="A universe.",
            clauses=frozenset(),
            steps=(
                *(change.step for change in self.changes),
                *(Probe(sender=probe.sender, to=probe.to, expect=frozenset()) for probe in self.probes),
                *(flow.open_step(number) for number, flow in enumerate(self.flows)),
                *(check.step for check in self.checks),
            ),
            families=(self.family,),
        )

    def next_exchange(self, flow: TimedFlow, last: float) -> float:
        """Time of a flow's exchange after the last."""
        if not flow.busy_pause:
            return last + flow.pause
        done = bisect_right(self._writes, last)
        if done and last - self._writes[done - 1] < BUSY:
            return last + flow.busy_pause
        return min([last + flow.pause, *self._writes[done : done + 1]])

    @cached_property
    def _writes(self) -> list[float]:
        """Times of all writes, in order."""
        return sorted(at for change in self.changes for at in (change.at, change.done))

    @cached_property
    def end(self) -> float:
        """Time at which all is done and everything must be in effect."""
        return max(self._ends())

    def _ends(self) -> Iterator[float]:
        yield from (change.done + CONVERGENCE for change in self.changes)
        yield from (fault.recovered for fault in self.faults)
