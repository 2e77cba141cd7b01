"""Steps of a case: changes, checks and actions, in order. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kproxy.conformance.case.outcomes import Lawful
from kproxy.conformance.case.services import CaseService
from kproxy.conformance.case.targets import Target, Vantage
from kproxy.model.network import Family


@dataclass(frozen=True)
class Apply:
    """Create or change these Services (with their EndpointSlices; slices no longer named are deleted)."""

    services: tuple[CaseService, ...]

    def __init__(self, *services: CaseService) -> None:
        object.__setattr__(self, "services", services)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a Service; with ``keep_slices``, its EndpointSlices stay."""

    service: CaseService
    keep_slices: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """New connections (or datagrams from new sockets), judged one by one.

    Every one must be lawful. ``clauses``: those that this step checks; by default, those that the oracle derives its
    verdict from. With ``spread`` enough are sent that each endpoint of ``expect`` must have been reached, with
    ``even`` so many that uneven shares show in a chi-square test (false alarm of each about one in a million),
    otherwise ``count``. Probes of one vantage and the same ``sticky_group`` name must all reach one endpoint, that of
    the `Open` of that name if there is one; those of the same ``rebalances`` name together more than one.
    ``payload_bytes``: send this many bytes and have them all echoed. ``from_port_of``: send from the port number that
    this target has. ``source_port_changed``: some endpoint must have seen another source port than the sender's.
    ``mark``: fwmark that the kernel sets on packets of a node's own process: they must leave the node with this mark
    and no other bit. ``first_packet_only``: a reply counts only if it is to the first packet, not to a
    retransmission. ``init_chunk_only``: no socket, but a single INIT, which begins an SCTP association; the endpoint
    that it enters is the result. ``multihomed``: an association that lists every address its sender has.
    """

    sender: Vantage
    to: Target
    expect: Lawful
    clauses: tuple[str, ...] = ()
    spread: bool = False
    even: bool = False
    count: int = 1
    sticky_group: str = ""
    rebalances: str = ""
    payload_bytes: int = 0
    from_port_of: Target | None = None
    source_port_changed: bool = False
    mark: int = 0
    first_packet_only: bool = False
    init_chunk_only: bool = False
    multihomed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousProbe:
    """Client that connects once now and, while later changes of the case are made and settle, continuously.

    ``expect``: lawful outcomes before, between and after all of these changes.
    """

    sender: Vantage
    to: Target
    expect: Lawful
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """ICMP echo request to the address of a target.

    `UNTOUCHED`: it left the node and a host beyond replied.
    """

    sender: Vantage
    to: Target
    expect: Lawful
    clauses: tuple[str, ...] = ()


HEALTH_PATH = "/healthz"


class EndpointCountLocation(enum.Enum):
    """Place in the response of a health check node port that has the number of endpoints."""

    BY_STATUS = "whether there are any"
    IN_BODY = "localEndpoints of the JSON body"
    IN_HEADER = "X-Load-Balancing-Endpoint-Weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckHealth:
    """HTTP request to the health check node port of a Service.

    ``expect``: number of endpoints on its node, reported by the status alone (200, or 503 for none) or in
    ``count_in``; None: the connection is refused. ``path``: by default the one that cloud controllers set up.
    """

    sender: Vantage
    to: Target
    expect: int | None
    clauses: tuple[str, ...] = ()
    path: str = HEALTH_PATH
    count_in: EndpointCountLocation = EndpointCountLocation.BY_STATUS


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckProxy:
    """HTTP request to the proxy's health port, 10256, of a node.

    ``expect``: the status. Repeated for up to ``timeout`` seconds, since Node events arrive by another watch than
    Service events, and since a change counts as late only after a while.
    """

    sender: Vantage
    node: str
    path: str
    expect: int
    clauses: tuple[str, ...] = ()
    timeout: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLatency:
    """Latency of the lab's own changes up to now, of isolated ones: see `kproxy.conformance.engine.convergence`."""

    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSysctl:
    """Read a sysctl of a node below ``net`` (``netfilter/nf_conntrack_tcp_be_liberal``)."""

    node: str
    name: str
    expect: str
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTraces:
    """Comparison of a node with what it had before the proxy's start: rules, tables, sets, virtual servers, devices.

    After a `CleanUp`; there must be nothing more, and nothing less.
    """

    node: str
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open a TCP connection (or a UDP socket that keeps its port), exchange once, keep it by name.

    ``same_port_as``: another flow of the same sender, whose source port it has too; ``from_port_of``: from the port
    number that this target has.
    """

    flow: str
    sender: Vantage
    to: Target
    expect: Lawful
    clauses: tuple[str, ...] = ()
    same_port_as: str = ""
    from_port_of: Target | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrelatedEntries:
    """Conntrack entries that the proxy must not touch: they must keep their kernel ID until the lab ends.

    Created by the harness on a node: a hostPort-like DNAT to an endpoint of ``service`` (a UDP Service with a node
    port); datagrams from a pod to another host at the same port number; datagrams to ``other_service``, which has
    that endpoint too; a TCP connection to ``service``. ``at_node_port``: instead of these, only datagrams from a pod
    to another host at the number of the node port.
    """

    node: str
    service: CaseService
    other_service: CaseService
    endpoint: str
    at_node_port: bool = False
    clauses: tuple[str, ...] = ()


class SameEndpoint(enum.Enum):
    """Expectation that a flow stays at its endpoint."""

    SAME_ENDPOINT = "the same endpoint as before"


SAME_ENDPOINT = SameEndpoint.SAME_ENDPOINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Exchange on a held flow again.

    `SAME_ENDPOINT`: the endpoint it had replies. Otherwise one of these outcomes (a UDP flow may move).
    """

    flow: str
    expect: Lawful | SameEndpoint
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen:
    """Make the server close a held connection, and connect again from the same port; judged like `Send`."""

    flow: str
    expect: Lawful
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopListening:
    """Close the listening socket at the endpoint of a held flow: its kernel refuses later packets.

    ``hangs``: it accepts no more TCP connections instead, and its kernel does not answer them.
    """

    flow: str
    hangs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfWindow:
    """Send a segment far outside the window from the endpoint of a held TCP flow (conntrack: INVALID)."""

    flow: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass; only for cases about time (timeouts)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SetZone:
    """Change a node's topology zone label ("" removes it); for profiles of one case."""

    node: str
    zone: str


@dataclass(frozen=True, slots=True)
class SetTaints:
    """Set a node's taints, by their keys; an empty list removes them."""

    node: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartNodeDeletion:
    """Begin the deletion of a Node object: it has a deletionTimestamp and stays, as one that waits for a finalizer does."""

    node: str


@dataclass(frozen=True, slots=True)
class AddServiceCidr:
    """Add a second ServiceCIDR to the cluster."""


@dataclass(frozen=True, slots=True)
class AddNodeAddress:
    """Add an address on the node network to a node, for the rest of the lab's life."""

    node: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Kill the node's proxy (SIGKILL) and start it again; ``while_down``: changes made while it is down.

    ``masquerade_bit``: value in its new configuration; None leaves it. ``without_slices``: for so many seconds after it
    has begun to list, the API server returns no EndpointSlices.
    """

    node: str
    while_down: Apply | Delete | None = None
    masquerade_bit: int | None = None
    without_slices: float = 0.0


@dataclass(frozen=True, slots=True)
class FailWrites:
    """Fault injection: netlink and bpf writes of a node's proxy and its child processes fail with ENOBUFS.

    That concerns netfilter, IPVS, addresses, routes and BPF maps. Existing rules stay in effect. Changes of its round
    and of later ones reach the proxy, but not its rules. Needs a profile of its own, whose cases all do this in the
    same round. ``family``: only writes of that IP family; None for both.
    """

    node: str
    family: Family | None = None


@dataclass(frozen=True, slots=True)
class DelayWrites:
    """Fault injection: each write of a node's proxy to the kernel succeeds, but begins ``seconds`` late; queries do not.

    So packets fall between the writes by which a change is applied.
    """

    node: str
    seconds: float = 0.02


@dataclass(frozen=True, slots=True)
class AllowWrites:
    """End of `FailWrites` or `DelayWrites`. Nothing else may change in its round.

    So the barrier waits for earlier changes, which the proxy must apply without a new event.
    """

    node: str


class Flushed(enum.Enum):
    """Rules or addresses that another program removes from a node, of both families."""

    IPTABLES = "all rules of iptables"
    TABLE_NAT = "all rules of iptables from table nat"
    NFTABLES = "all tables of nftables"
    ADDRESSES = "all addresses of dummy interfaces"


@dataclass(frozen=True, slots=True)
class FlushRules:
    """Another program removes rules or addresses from a node. Nothing else may change in its round.

    The barrier waits until what was served is served again, which the proxy must see to without an event; of nftables, for
    some time, and then until a Service of its own is served.
    """

    node: str
    what: Flushed = Flushed.IPTABLES


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Kill a node's proxy, and run the subject's own command that removes what it left. For a profile of its own."""

    node: str


@dataclass(frozen=True, slots=True)
class TakePort:
    """A program on a node listens at the health check node port of this Service, at all addresses, until `ReleasePort`."""

    node: str
    service: CaseService


@dataclass(frozen=True, slots=True)
class ReleasePort:
    """End of `TakePort`."""

    node: str
    service: CaseService


class WatchFault(enum.Enum):
    """Way in which proxies' watches fail to deliver changes when they are made."""

    CONNECTION_RESET = "its connections to the API server are reset"
    GONE = "it cannot watch, and when it can, the API server has forgotten what happened: 410 Gone"
    DELAYED = "its watches are silent, and then deliver all at once"


@dataclass(frozen=True, slots=True)
class DuringWatchFault:
    """Changes made while all watches fail (``fault``); watches recover afterwards. Last step of its round."""

    fault: WatchFault
    changes: tuple[Apply | Delete, ...]

    def __init__(self, fault: WatchFault, *changes: Apply | Delete) -> None:
        object.__setattr__(self, "fault", fault)
        object.__setattr__(self, "changes", changes)


HealthRequest = CheckHealth | CheckProxy
"""Requests of load balancers to a node."""

Mutation = (
    Apply
    | Delete
    | SetZone
    | SetTaints
    | StartNodeDeletion
    | AddServiceCidr
    | AddNodeAddress
    | Restart
    | FailWrites
    | DelayWrites
    | AllowWrites
    | FlushRules
    | CleanUp
    | TakePort
    | ReleasePort
    | DuringWatchFault
)
"""Steps that change objects or processes, before a barrier."""

UnjudgedAction = StopListening | OutOfWindow
"""Actions between checks that are not judged."""

TextCheck = HealthRequest | ReadSysctl | CheckTraces | CheckLatency | UnrelatedEntries
"""Checks whose result is a text."""

Step = Mutation | Probe | ContinuousProbe | Ping | TextCheck | Open | Send | Reopen | UnjudgedAction | Wait
