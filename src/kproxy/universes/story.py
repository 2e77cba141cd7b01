"""Story of a universe in which something was unlawful: what happened before, the packet, and what was lawful. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.conformance.case.descriptions import describe_step, describe_target
from kproxy.universes.judge import Verdict, Violation
from kproxy.universes.recording import SECOND, Changed, FaultBegan, FaultEnded, Recording
from kproxy.universes.schedule import Schedule, TimedCheck, TimedFault

MOST_VIOLATIONS = 3


def story_lines(schedule: Schedule, recording: Recording, verdict: Verdict) -> Iterator[str]:
    """Lines of the story; none where all was lawful."""
    for violation in verdict.violations[:MOST_VIOLATIONS]:
        yield from _before(schedule, recording, violation)
        yield f"  {violation.at:10.6f} s  {describe_sent(violation)}"
        yield f"      lawful:  {' or '.join(violation.lawful)}"
        yield f"      seen:    {violation.seen}"
        yield f"      clauses: {', '.join(violation.clauses)}"
    if (more := len(verdict.violations) - MOST_VIOLATIONS) > 0:
        yield f"  and {more} more"


def describe_sent(violation: Violation) -> str:
    """Packet of a violation: its sender and its destination."""
    if isinstance(violation.sent, TimedCheck):
        return describe_step(violation.sent.step)
    again = ", as before" if violation.established else ""
    return f"{violation.sent.sender} to {describe_target(violation.sent.to)}{again}"


def describe_fault(fault: TimedFault) -> str:
    """Fault, with the node or the resource that it is about."""
    where = f"node {fault.node}: " if fault.node else ""
    which = f" ({fault.resource.value} only)" if fault.resource else ""
    return f"{where}{fault.kind.value}{which}"


def _before(schedule: Schedule, recording: Recording, violation: Violation) -> Iterator[str]:
    """Lines of the faults before the window of a violation, then of the changes and faults in it."""
    for fault in schedule.faults:
        if fault.at < violation.since:
            yield f"  {fault.at:10.6f} s  {describe_fault(fault)}, for {fault.seconds:g} s"
    for line in recording.lines:
        at = line.at / SECOND
        if not violation.since - 0.001 <= at <= violation.at:
            continue
        match line:
            case Changed(number=number):
                yield f"  {at:10.6f} s  {describe_step(schedule.changes[number].step)}"
            case FaultBegan(number=number):
                yield f"  {at:10.6f} s  {describe_fault(schedule.faults[number])}"
            case FaultEnded(number=number):
                yield f"  {at:10.6f} s  end of: {schedule.faults[number].kind.value}"
            case _:
                pass
