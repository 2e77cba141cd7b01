"""Probe requests and observations, as values.

Pure. An `Observation` describes what happened on the wire, in addresses; whether that was lawful is judged elsewhere.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from kproxy.model.network import Address, Family, Protocol, family_of, format_socket

PortNumber = int


@lru_cache(maxsize=4096)
def address_from_text(text: str) -> Address:
    """Address from its text, cached: a lab has few, and they recur often."""
    return ip_address(text)


@dataclass(frozen=True, slots=True)
class Socket:
    """An address and a port number."""

    address: Address
    port: PortNumber

    def __str__(self) -> str:
        """Text as in a URL."""
        return format_socket(self.address, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """One new connection (or datagram from a new socket).

    ``sender`` is a namespace of the topology. ``source`` is the address to send from (None: the kernel picks; outside
    clients choose their node by it), ``source_port`` 0 takes one that no other probe of this sender has; probes with
    ``shares_port`` may have the same one. ``size`` bytes are sent and must all come back. ``mark``: fwmark that the
    sender's kernel sets on its packets. ``patience``: seconds to wait for any reply.
    """

    sender: str
    destination: Address
    port: PortNumber
    protocol: Protocol = Protocol.TCP
    source: Address | None = None
    source_port: PortNumber = 0
    shares_port: bool = False
    size: int = 0
    mark: int = 0
    patience: float = 1.0

    @property
    def family(self) -> Family:
        """Family of the destination."""
        return family_of(self.destination)

    @property
    def to(self) -> Socket:
        """Destination address and port."""
        return Socket(self.destination, self.port)


class Direction(enum.Enum):
    """Direction in which a packet crossed an interface, seen from the namespace."""

    IN = "in"
    OUT = "out"


@dataclass(frozen=True, slots=True)
class Sighting:
    """First packet of a probe (or a copy of it) crossing an interface, with its addresses there."""

    namespace: str
    interface: str
    direction: Direction
    source: Socket
    destination: Socket


@dataclass(frozen=True, slots=True)
class Reception:
    """Server's record that a probe's request reached it."""

    who: str
    at: Socket
    peer: Socket


@dataclass(frozen=True, slots=True)
class Evidence:
    """Records of captures and servers about one probe, in the order seen.

    ``lost``: packets the captures missed for want of buffer space; absence proves nothing unless 0.
    """

    sightings: tuple[Sighting, ...] = ()
    receptions: tuple[Reception, ...] = ()
    lost: int = 0

    def entered(self, namespace: str) -> bool:
        """True if its packet entered a namespace by an interface other than loopback."""
        return any(s.namespace == namespace and s.direction is Direction.IN for s in self._wired())

    def left(self, namespace: str) -> tuple[Sighting, ...]:
        """Its packet leaving a namespace by an interface other than loopback."""
        return tuple(s for s in self._wired() if s.namespace == namespace and s.direction is Direction.OUT)

    def stopped_in(self) -> tuple[str, ...]:
        """Namespaces that its packet entered and did not leave, in the order of entering."""
        entered = dict.fromkeys(s.namespace for s in self._wired() if s.direction is Direction.IN)
        return tuple(namespace for namespace in entered if not self.left(namespace))

    def _wired(self) -> tuple[Sighting, ...]:
        return tuple(s for s in self.sightings if s.interface != "lo")


@dataclass(frozen=True, slots=True)
class Answered:
    """Reply of a server.

    ``who``: its name; ``at``: where it received the request (the endpoint and its target port); ``peer``: the source
    it saw; ``own``: the sender's true source.
    """

    who: str
    at: Socket
    peer: Socket
    own: Socket


@dataclass(frozen=True, slots=True)
class Icmp:
    """Type and code of an ICMP error, in the numbers of its family (RFC 792, RFC 4443)."""

    family: Family
    type: int
    code: int

    @property
    def port_unreachable(self) -> bool:
        """True for IPv4 type 3 code 3, IPv6 type 1 code 4."""
        return (self.type, self.code) == ((3, 3) if self.family is Family.IPV4 else (1, 4))


@dataclass(frozen=True, slots=True)
class Refused:
    """ICMP error about the probe, from this router or host; ``about``: the destination it quotes."""

    icmp: Icmp
    by: IPv4Address | IPv6Address
    about: Socket


@dataclass(frozen=True, slots=True)
class Reset:
    """TCP RST (or SCTP ABORT); ``connected``: after the handshake."""

    connected: bool = False


@dataclass(frozen=True, slots=True)
class Silent:
    """No reply within the patience.

    ``connected``: the handshake was completed, the request got no reply. ``stopped_at_sender``: the sender's own
    netfilter dropped it (EPERM), so it was not waited for.
    """

    connected: bool = False
    stopped_at_sender: bool = False
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def endpoint_saw(self) -> bool:
        """True if some server received the request although the sender got no reply."""
        return bool(self.evidence.receptions)


@dataclass(frozen=True, slots=True)
class NetworkError:
    """Error of the sender's own kernel without any packet: no route, address in use, ... (an errno)."""

    errno: int


@dataclass(frozen=True, slots=True)
class Garbled:
    """Reply that is not from a server of the lab, or with other padding than was sent."""

    what: str


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Probe of a protocol that this kernel lacks."""

    why: str


Observation = Answered | Refused | Reset | Silent | NetworkError | Garbled | Unsupported
