"""What an agent is asked to do, and what it answers.  Values; `kproxy.conformance.testbeds.cluster.wire` is their form."""

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
    """Who are you?  Answer: `About`."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Answer on a port as ``who``; without ``addresses`` on every one."""

    port: int
    protocol: Protocol
    who: str
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Serve:
    """Listen.  Answer: `Served`."""

    listeners: tuple[Listener, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Send so many new connections at once.  Answer: `Asked`."""

    request: ProbeRequest
    count: int = 1
    mark: int = 0


@dataclass(frozen=True, slots=True)
class SendPing:
    """Send an ICMP echo request.  Answer: `Pinged`."""

    request: ProbeRequest


@dataclass(frozen=True, slots=True)
class Get:
    """Ask by HTTP.  Answer: `Got`."""

    request: ProbeRequest
    path: str


@dataclass(frozen=True, slots=True)
class Open:
    """Open a flow under this name, and exchange once.  Answer: `Exchanged`."""

    request: ProbeRequest
    flow: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """Exchange on a flow again.  Answer: `Exchanged`."""

    flow: str
    patience: float


@dataclass(frozen=True, slots=True)
class Reopen:
    """Wait for the server's end of a flow, connect again from the same port, exchange once.  Answer: `Exchanged`."""

    flow: str
    patience: float


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the server's end of the connection over which this number came; whoever has none does nothing."""

    number: int


@dataclass(frozen=True, slots=True)
class StopListening:
    """Listen no more where this number was received; whoever did not receive it does nothing."""

    number: int
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class Look:
    """What do you know of these numbers?  Answer: `Known`."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop what the captures have seen up to now."""


@dataclass(frozen=True, slots=True)
class Tell:
    """What rules and tables are there?  Answer: `Told`."""


COMMANDS = (
    *(Hello, Listener, Serve, Ask, SendPing, Get, Open, Exchange, Reopen),
    *(HangUp, StopListening, Look, Forget, Tell),
)

# ----------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class About:
    """Its name in the lab, the addresses of its interfaces, whether its kernel has SCTP sockets."""

    name: str
    addresses: tuple[Address, ...]
    sctp: bool


@dataclass(frozen=True, slots=True)
class Served:
    """Why it does not listen where it should; empty when it does."""

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One probe: its number, what came of it, what this agent's captures saw; the marks that it left with, where that is asked for."""

    number: int
    observation: Observation
    evidence: Evidence
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """One `Seen` for each connection."""

    seen: tuple[Seen, ...]


@dataclass(frozen=True, slots=True)
class Pinged:
    """What came of a ping; its number."""

    number: int
    seen: Ping


@dataclass(frozen=True, slots=True)
class Got:
    """None: refused."""

    response: Response | Silent | None


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One exchange on a flow; ``own``: the flow's own address and port, None where it could not be opened."""

    number: int
    observation: Observation
    own: Socket | None


@dataclass(frozen=True, slots=True)
class Known:
    """The evidence of each number, in order."""

    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """Texts by name; what a machine lacks is left out."""

    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing to say."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """It could not be done; why."""

    reason: str


REPLIES = (About, Served, Seen, Asked, Pinged, Got, Exchanged, Known, Told, Done, Wrong)
