"""Recording of a universe: one JSON line for each thing that happened, in the order in which it did. Pure.

Times are nanoseconds of the universe's clock since the proxies had settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address

import msgspec

from kproxy.spec.outcome import Delivered, Failure, Outcome, SourceIP

SECOND = 1_000_000_000


class Changed(msgspec.Struct, frozen=True, kw_only=True, tag="change"):
    """Change ``number`` of the schedule was made."""

    at: int
    number: int


class FaultBegan(msgspec.Struct, frozen=True, kw_only=True, tag="fault-begins"):
    """Fault ``number`` of the schedule began."""

    at: int
    number: int


class FaultEnded(msgspec.Struct, frozen=True, kw_only=True, tag="fault-ends"):
    """Fault ``number`` of the schedule ended."""

    at: int
    number: int


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True, tag="caught-up"):
    """After fault ``number``, of the API server, all watches are open again and have been sent all there is."""

    at: int
    number: int


class Probed(msgspec.Struct, frozen=True, kw_only=True, tag="probe"):
    """Probe ``number`` of the schedule had its result; ``outcomes``: those that it is consistent with, as text.

    ``unclear``: why it has none that can be judged.
    """

    at: int
    until: int
    number: int
    outcomes: tuple[str, ...] = ()
    text: str = ""
    unclear: str = ""


class FlowExchanged(msgspec.Struct, frozen=True, kw_only=True, tag="exchange"):
    """Exchange on flow ``number`` of the schedule; ``opened``: its first, or its first since it ended; else as `Probed`."""

    at: int
    until: int
    number: int
    opened: bool
    outcomes: tuple[str, ...] = ()
    text: str = ""
    unclear: str = ""


class HealthChecked(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Response to check ``number`` of the schedule (`kproxy.conformance.testbed.describe_status`)."""

    at: int
    until: int
    number: int
    text: str


class LogEnded(msgspec.Struct, frozen=True, kw_only=True, tag="log"):
    """All that a node's proxy has logged."""

    at: int
    node: str
    text: str


class StateRead(msgspec.Struct, frozen=True, kw_only=True, tag="state"):
    """Output of a command where the universe was stopped; ``namespace``: the lab's name of it."""

    at: int
    namespace: str
    command: str
    text: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Universe's end before its schedule's: ``subject`` if its proxy is to blame, else the harness."""

    at: int
    subject: bool
    text: str


Line = (
    Changed
    | FaultBegan
    | FaultEnded
    | CaughtUp
    | Probed
    | FlowExchanged
    | HealthChecked
    | LogEnded
    | StateRead
    | Failed
)
_DECODER = msgspec.json.Decoder(Line)


@dataclass(frozen=True, slots=True)
class Recording:
    """Lines of a recording."""

    lines: tuple[Line, ...]

    @property
    def failure(self) -> Failed | None:
        """Failure that ended it."""
        return next((line for line in self.lines if isinstance(line, Failed)), None)

    def caught_up(self) -> dict[int, float]:
        """Seconds at which the watches had caught up, by the number of the fault."""
        return {line.number: line.at / SECOND for line in self.lines if isinstance(line, CaughtUp)}

    def probes(self) -> Iterator[Probed]:
        """Results of its probes."""
        return (line for line in self.lines if isinstance(line, Probed))

    def checks(self) -> Iterator[HealthChecked]:
        """Responses of health ports."""
        return (line for line in self.lines if isinstance(line, HealthChecked))

    def exchanges(self, number: int) -> Iterator[FlowExchanged]:
        """Exchanges on a flow."""
        return (line for line in self.lines if isinstance(line, FlowExchanged) and line.number == number)

    def states(self) -> Iterator[StateRead]:
        """Outputs of the commands that ran where it was stopped."""
        return (line for line in self.lines if isinstance(line, StateRead))

    def log(self, node: str) -> str:
        """All that a node's proxy has logged."""
        return "".join(line.text for line in self.lines if isinstance(line, LogEnded) and line.node == node)


def encode_line(line: Line) -> bytes:
    """JSON of a line, with its end."""
    return msgspec.json.encode(line) + b"\n"


def parse_recording(data: bytes) -> Recording:
    """Recording from the lines that a universe has printed. Raises `msgspec.DecodeError`."""
    return Recording(tuple(map(_DECODER.decode, data.splitlines())))


def outcome_text(outcome: Outcome) -> str:
    """Text of an outcome, for `outcome_from_text`."""
    if isinstance(outcome, Failure):
        return outcome.value
    return f"{outcome.address} {outcome.port} {outcome.source.value}"


def outcome_from_text(text: str) -> Outcome:
    """Outcome from its text."""
    if " " not in text:
        return Failure(text)
    address, port, source = text.split()
    return Delivered(ip_address(address), int(port), SourceIP(source))


def outcomes_text(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Texts of outcomes, sorted."""
    return tuple(sorted(map(outcome_text, outcomes)))
