"""What is done: the steps of a case, in order.  Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kproxy.conformance.case.outcomes import Lawful
from kproxy.conformance.case.services import CaseService
from kproxy.conformance.case.targets import Target, Vantage


@dataclass(frozen=True)
class Apply:
    """Create or change these Services (with their EndpointSlices; slices no longer named are deleted)."""

    services: tuple[CaseService, ...]

    def __init__(self, *services: CaseService) -> None:
        object.__setattr__(self, "services", services)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete these Services; with ``keep_slices`` only the Service object."""

    service: CaseService
    keep_slices: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """New connections (or datagrams from new sockets), judged one by one.

    Every one must be lawful.  ``clauses``: those that this step is about; without any, those that the oracle answers by.
    With ``spread`` enough are sent that each backend of ``expect`` must
    have been seen, with ``even`` so many that uneven shares show in a chi-square test (wrong alarm of
    each about one in a million), otherwise ``count``.  Probes of one vantage and the same ``sticky_group`` name must all
    reach one backend, that of the `Open` of that name if there is one; those of the same ``rebalances`` name together
    more than one.  ``payload_bytes``: send this many bytes and have them all echoed.  ``from_port_of``: send from
    the port number that this target has.  ``source_port_changed``: some endpoint must have seen another source port
    than the sender's.  ``mark``: of a node's own process, whose packets the kernel marks so: they must leave the node
    with this mark and no other bit.  ``first_packet_only``: an answer counts only if the first packet got it, and not one that was
    sent again.  ``init_chunk_only``: no socket, but the one packet that begins an SCTP association; whose it becomes is what counts.
    ``multihomed``: an association that lists every address its sender has.
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
    """A client that asks once now and, while later changes of the case are made and settle, without a pause.

    ``expect``: what is lawful before, between and after all of these changes.
    """

    sender: Vantage
    to: Target
    expect: Lawful
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """An ICMP echo request to the address of a target.

    `UNTOUCHED`: it left the node and somebody beyond it answered.
    """

    sender: Vantage
    to: Target
    expect: Lawful
    clauses: tuple[str, ...] = ()


HEALTH_PATH = "/healthz"


class EndpointCountLocation(enum.Enum):
    """Where a health check node port tells how many endpoints there are."""

    BY_STATUS = "whether there are any"
    IN_BODY = "localEndpoints of the JSON body"
    IN_HEADER = "X-Load-Balancing-Endpoint-Weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckHealth:
    """An HTTP request to the health check node port of a Service.

    ``expect``: how many endpoints its node has, which is told by the status alone (200, or 503 for none) or as ``count_in``
    says; None: the connection is refused.  ``path``: by default the one that cloud controllers set up.
    """

    sender: Vantage
    to: Target
    expect: int | None
    clauses: tuple[str, ...] = ()
    path: str = HEALTH_PATH
    count_in: EndpointCountLocation = EndpointCountLocation.BY_STATUS


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckProxy:
    """An HTTP request to where a node's proxy tells its own health: port 10256 of its address.

    ``expect``: the status.  It is asked again for ``timeout`` seconds, as what Nodes tell comes by another watch than what
    Services do, and as a change may wait for a while before it is late.
    """

    sender: Vantage
    node: str
    path: str
    expect: int
    clauses: tuple[str, ...] = ()
    timeout: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLatency:
    """How long the lab's own changes have taken up to now, those that came alone: see `kproxy.conformance.engine.convergence`."""

    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSysctl:
    """A setting of a node's network, below ``net`` (``netfilter/nf_conntrack_tcp_be_liberal``)."""

    node: str
    name: str
    expect: str
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
    """Connection tracking entries on a node that no change of a Service concerns; until the end of the lab each must stay.

    Not only be there: be the same, by the identity that the kernel gives an entry.  They are made by hand, as what made
    them is others' traffic: a port of the node that a CNI leads to an endpoint of ``service`` (a UDP Service with a node
    port), datagrams of a pod to another machine at the port number of ``service``, datagrams to ``other_service`` (a Service with
    that endpoint too), and a connection to ``service`` by TCP.  ``at_node_port``: instead of these, datagrams of a pod to another
    machine at the number of the node port.
    """

    node: str
    service: CaseService
    other_service: CaseService
    backend: str
    at_node_port: bool = False
    clauses: tuple[str, ...] = ()


class SameEndpoint(enum.Enum):
    """The flow is where it was."""

    SAME_ENDPOINT = "the same endpoint as before"


SAME_ENDPOINT = SameEndpoint.SAME_ENDPOINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Exchange on a held flow again.

    `SAME_ENDPOINT`: the endpoint it had answers.  Otherwise one of these outcomes (a UDP flow may move).
    """

    flow: str
    expect: Lawful | SameEndpoint
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen:
    """Have the server close a held connection, and connect again from the same port; judged like `Send`."""

    flow: str
    expect: Lawful
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopListening:
    """The endpoint of a held flow stops listening: what is sent to it from now on is refused by its own kernel."""

    flow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfWindow:
    """The endpoint of a held TCP flow sends a segment far outside the window (conntrack: INVALID)."""

    flow: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass; only what is about time (timeouts) may."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SetZone:
    """Give a node's topology zone label another value ("" removes it); for profiles of one case."""

    node: str
    zone: str


@dataclass(frozen=True, slots=True)
class SetTaints:
    """Give a node exactly these taints, by their keys; none removes them."""

    node: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartNodeDeletion:
    """Begin to delete a node's object: it has a deletionTimestamp and goes on to exist, as what waits for a finalizer does."""

    node: str


@dataclass(frozen=True, slots=True)
class AddServiceCidr:
    """Add a second ServiceCIDR to the cluster."""


@dataclass(frozen=True, slots=True)
class AddNodeAddress:
    """Give a node one more address on the node network, which it keeps as long as the lab lasts."""

    node: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Kill the node's proxy (SIGKILL) and start it again; ``while_down`` happens while it is down.

    ``masquerade_bit``: what its configuration says from now on; None leaves it.  ``start_without_slices``: for so many seconds
    after it has begun to list, the API server gives it no EndpointSlices.
    """

    node: str
    while_down: Apply | Delete | None = None
    masquerade_bit: int | None = None
    without_slices: float = 0.0


@dataclass(frozen=True, slots=True)
class FailWrites:
    """From now on the kernel has no memory (ENOBUFS) for what the node's proxy, or a program that it starts, writes to it.

    That is to netfilter, IPVS, addresses, routes and BPF maps.  What its rules do goes on.  Changes of its round and of later ones reach the proxy, but not its rules; only for
    profiles of their own, whose cases do so in the same round.
    """

    node: str


@dataclass(frozen=True, slots=True)
class AllowWrites:
    """The kernel takes what the node's proxy writes again.  Nothing else may change in its round.

    So the barrier waits for what was written before, which the proxy must apply by itself.
    """

    node: str


class WatchFault(enum.Enum):
    """Why a proxy does not learn of changes when they are made."""

    CONNECTION_RESET = "its connections to the API server are reset"
    GONE = "it cannot watch, and when it can, the API server has forgotten what happened: 410 Gone"
    DELAYED = "its watches are silent, and then tell all at once"


@dataclass(frozen=True, slots=True)
class DuringWatchFault:
    """These changes are made, in this order, while no proxy learns of any; then all may.  It ends its round."""

    fault: WatchFault
    changes: tuple[Apply | Delete, ...]

    def __init__(self, fault: WatchFault, *changes: Apply | Delete) -> None:
        object.__setattr__(self, "fault", fault)
        object.__setattr__(self, "changes", changes)


HealthRequest = CheckHealth | CheckProxy
"""What load balancers ask of a node."""

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
    | AllowWrites
    | DuringWatchFault
)
"""What is changed, before a barrier."""

UnjudgedAction = StopListening | OutOfWindow
"""What happens between questions and is not judged."""

TextCheck = HealthRequest | ReadSysctl | CheckLatency | UnrelatedEntries
"""Questions that are answered by a text."""

Step = Mutation | Probe | ContinuousProbe | Ping | TextCheck | Open | Send | Reopen | UnjudgedAction | Wait
