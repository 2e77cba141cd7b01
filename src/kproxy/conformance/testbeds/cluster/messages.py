"""Messages between harness and agents: commands and replies.

Values; `kproxy.conformance.testbeds.cluster.wire` encodes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kproxy.lab.captures.packet_marks import Mark
from kproxy.lab.probes.echo import Ping
from kproxy.lab.probes.http import Response
from kproxy.lab.probes.observation import Evidence, Observation, ProbeRequest, Silent, Socket
from kproxy.model.network import Address, Protocol

# ---------------------------------------------------------------------- commands


@dataclass(frozen=True, slots=True)
class Hello:
    """Query the agent's identity. Reply: `About`."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Port to listen on, replying as ``who``; without ``addresses`` on every one."""

    port: int
    protocol: Protocol
    who: str
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Serve:
    """Listen. Reply: `Served`."""

    listeners: tuple[Listener, ...]


@dataclass(frozen=True, slots=True)
class SendProbes:
    """Send so many new connections at once. Reply: `ProbesSent`."""

    request: ProbeRequest
    count: int = 1
    mark: int = 0


@dataclass(frozen=True, slots=True)
class SendPing:
    """Send an ICMP echo request. Reply: `Pinged`."""

    request: ProbeRequest


@dataclass(frozen=True, slots=True)
class Get:
    """Send an HTTP request. Reply: `Got`."""

    request: ProbeRequest
    path: str


@dataclass(frozen=True, slots=True)
class OpenFlow:
    """Open a flow under this name, and exchange once. Reply: `Exchanged`."""

    request: ProbeRequest
    flow: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """Exchange on a flow again. Reply: `Exchanged`."""

    flow: str
    patience: float


@dataclass(frozen=True, slots=True)
class ReopenFlow:
    """Wait for the server's end of a flow, connect again from the same port, exchange once. Reply: `Exchanged`."""

    flow: str
    patience: float


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the server's end of the connection that carried probe ``number``.

    An agent without such a connection does nothing.
    """

    number: int


@dataclass(frozen=True, slots=True)
class CloseListener:
    """Close the listening socket that received probe ``number``; an agent that did not receive it does nothing."""

    number: int
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class ReadEvidence:
    """Query the evidence of these probes. Reply: `ProbeEvidence`."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop the records of the captures up to now."""


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the node's rules and tables. Reply: `NodeState`."""


COMMANDS = (
    *(Hello, Listener, Serve, SendProbes, SendPing, Get, OpenFlow, Exchange, ReopenFlow),
    *(HangUp, CloseListener, ReadEvidence, Forget, ReadState),
)

# ----------------------------------------------------------------------- replies


@dataclass(frozen=True, slots=True)
class About:
    """Agent's name in the lab, the addresses of its interfaces, whether its kernel has SCTP sockets.

    ``accepts_redirects``: sysctls by which its network takes routes from ICMP redirects.
    """

    name: str
    addresses: tuple[Address, ...]
    sctp: bool
    accepts_redirects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Served:
    """Reasons why it does not listen where it should; empty when it does."""

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One probe: number, observation, evidence of this agent; fwmarks of the first packets, for probes that set one."""

    number: int
    observation: Observation
    evidence: Evidence
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbesSent:
    """One `Seen` for each connection."""

    seen: tuple[Seen, ...]


@dataclass(frozen=True, slots=True)
class Pinged:
    """Observation of a ping, and its number."""

    number: int
    seen: Ping


@dataclass(frozen=True, slots=True)
class Got:
    """HTTP response; None: refused."""

    response: Response | Silent | None


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One exchange on a flow; ``own``: the flow's own address and port, None where it could not be opened."""

    number: int
    observation: Observation
    own: Socket | None


@dataclass(frozen=True, slots=True)
class ProbeEvidence:
    """Evidence of each probe, in order."""

    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class NodeState:
    """Texts of rules and tables by name; those that a machine lacks are left out."""

    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Done:
    """Acknowledgement without content."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """Failure of a command; why."""

    reason: str


REPLIES = (About, Served, Seen, ProbesSent, Pinged, Got, Exchanged, ProbeEvidence, NodeState, Done, Wrong)
