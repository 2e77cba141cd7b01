"""Results of `kproxy trace` as outcomes of the specification."""

from __future__ import annotations

from kproxy.spec.outcome import Delivered, Failure, Outcome, SourceIP
from kproxy.tools.trace.answer import Decision


def outcome(one: Decision) -> Outcome:
    source = SourceIP.MASQUERADED if one.masqueraded else SourceIP.PRESERVED
    match one.kind:
        case "unknown":
            raise AssertionError(one.how)  # what our own proxy writes is modelled
        case "rejected":
            return Failure.REJECTED
        case "dropped":
            return Failure.DROPPED
        case "translated":
            return Delivered(one.destination, one.port, source)
        case _ if one.masqueraded and not one.delivered:
            # what stays on the node is its own, by whatever address
            return Delivered(one.destination, one.port, source)
        case _:
            return Failure.UNTOUCHED
