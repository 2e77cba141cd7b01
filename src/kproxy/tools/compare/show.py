"""Comparison as text and as JSON, and the progress line."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TextIO

from kproxy.conformance.testbed import Observation
from kproxy.lab.topology import Topology
from kproxy.spec.outcome import Delivered
from kproxy.spec.topics import topic_of_clause
from kproxy.tools.compare.differences import ProxyDifference, outcome_kinds
from kproxy.tools.compare.known_differences import DocumentedDifference, documented_difference
from kproxy.tools.compare.query import ComparisonResult
from kproxy.tools.lab_session.frontend_probes import ClientKind, FrontendProbe, ProbeSender

_EXAMPLES = 3
_PAUSE = 0.2


class StatusLine:
    """Progress line on a terminal that is overwritten; nothing where the output is kept."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._live, self._next = stream, stream.isatty(), 0.0

    def __call__(self, text: str) -> None:
        """Show the current activity."""
        now = time.monotonic()
        if self._live and now >= self._next:
            self._next = now + _PAUSE
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()

    def close(self) -> None:
        """Erase the line."""
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


@dataclass(frozen=True)
class ComparisonReport:
    """Result of a comparison, with everything that its text needs."""

    names: tuple[str, str]
    modes: tuple[str, str]
    topology: Topology
    compared: ComparisonResult
    seconds: float

    @cached_property
    def intended(self) -> dict[str, tuple[DocumentedDifference, list[ProxyDifference]]]:
        """Differences that are documented, by the entry's ID."""
        found: dict[str, tuple[DocumentedDifference, list[ProxyDifference]]] = {}
        for one in self.compared.differences:
            entry = documented_difference(one, self.modes)
            if entry is not None:
                found.setdefault(entry.id, (entry, []))[1].append(one)
        return found

    @cached_property
    def unknown(self) -> list[ProxyDifference]:
        """Differences that are not documented."""
        return [one for one in self.compared.differences if documented_difference(one, self.modes) is None]

    def samples(self) -> Iterator[tuple[str, ProxyDifference]]:
        """One example of each intended and of each unknown kind of difference, with a name, for export as cases."""
        for id, (_, found) in self.intended.items():
            yield f"intended-{id}", found[0]
        for number, alike in enumerate(_alike(self.unknown).values(), 1):
            yield f"unknown-{number}", alike[0]


def comparison_text(report: ComparisonReport) -> str:
    """Text of the comparison."""
    nodes = " and ".join(report.topology.hostnames.values())
    lines = [f"{report.names[0]} against {report.names[1]} on {nodes}"]
    for entry, found in report.intended.values():
        lines += ["", *_intended(report, entry, found)]
    for (_, shown), alike in _alike(report.unknown).items():
        lines += ["", *_unknown(report, alike, shown)]
    for reason, numbers in _reasons(report.compared).items():
        lines += ["", f"not observed, {len(numbers)} packets: {reason}"]
    lines += [f"no server could listen for endpoint {deaf}" for deaf in report.compared.unserved]
    return "\n".join([*lines, "", _sum(report)]) + "\n"


def _intended(
    report: ComparisonReport, entry: DocumentedDifference, found: Sequence[ProxyDifference]
) -> Iterator[str]:
    yield f"intended: {entry.text}"
    yield from (f"  {link}" for link in entry.links)
    for id in sorted(entry.clauses & {id for one in found for id in one.expectation.clauses}):
        yield f"  clause {id} (docs/spec/topics/{topic_of_clause(id).name}.md)"
    services = len({one.probe.name for one in found})
    yield f"  {len(found)} packet{'s' * (len(found) > 1)} to {services} Service{'s' * (services > 1)}, as"
    for one in _samples(found):
        yield f"    {_what(report.topology, one.probe)}: {_both(report, one)}"


def _samples(found: Sequence[ProxyDifference]) -> Sequence[ProxyDifference]:
    """A few examples, of different Services."""
    by_service = {one.probe.name: one for one in reversed(found)}
    return list(reversed(by_service.values()))[:_EXAMPLES]


Key = tuple[object, ...]


def _alike(unknown: Sequence[ProxyDifference]) -> dict[Key, list[ProxyDifference]]:
    """Unknown differences grouped by Service, port and outcomes."""
    found: dict[Key, list[ProxyDifference]] = {}
    for one in unknown:
        shown = tuple(", ".join(sorted(outcome_kinds(side))) for side in one.seen)
        question = one.probe
        key = ((question.service, question.packet.protocol, question.frontend, shown), shown)
        found.setdefault(key, []).append(one)
    return found


def _unknown(report: ComparisonReport, alike: Sequence[ProxyDifference], _: object) -> Iterator[str]:
    first = alike[0]
    yield f"unknown: {first.probe.name}, {first.probe.frontend.value}"
    for one in alike[:_EXAMPLES]:
        yield f"  {_what(report.topology, one.probe)}"
        for name, seen, bad in zip(report.names, one.seen, one.unlawful, strict=True):
            yield f"    {name}: {_seen(seen)}{'  (unlawful)' if bad else ''}"
        yield f"    lawful: {_lawful(one)}"
    if len(alike) > _EXAMPLES:
        yield f"  and {len(alike) - _EXAMPLES} packets more like these"
    yield f"  clauses: {', '.join(first.expectation.clauses)}"


def _what(topology: Topology, question: FrontendProbe) -> str:
    return (
        f"{_sender(topology, question.sender)} -> {question.to} ({question.name}, {question.frontend.value})"
    )


def _sender(topology: Topology, sender: ProbeSender) -> str:
    node = topology.hostnames[sender.node]
    match sender.kind:
        case ClientKind.HOST:
            return f"node {node}"
        case ClientKind.POD:
            return f"a pod on {node}"
        case ClientKind.ENDPOINT:
            return f"endpoint {sender.source} on {node}"
        case _:
            return f"{sender.kind.value} {sender.source} through {node}"


def _both(report: ComparisonReport, one: ProxyDifference) -> str:
    return "; ".join(
        f"{name} {', '.join(sorted(outcome_kinds(side)))}"
        for name, side in zip(report.names, one.seen, strict=True)
    )


def _seen(answers: Sequence[Observation]) -> str:
    """Observations, one example of each kind."""
    shown = {", ".join(sorted(outcome_kinds([one]))): one.text for one in reversed(answers)}
    return "; ".join(f"{kind}: {text}" if kind != text else kind for kind, text in sorted(shown.items()))


def _lawful(one: ProxyDifference) -> str:
    found = {
        f"delivered (source {o.source.value})" if isinstance(o, Delivered) else o.value
        for o in one.expectation.outcomes
    }
    return " or ".join(sorted(found))


def _reasons(compared: ComparisonResult) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, reason in compared.broken.items():
        found.setdefault(reason, []).append(number)
    return found


def _sum(report: ComparisonReport) -> str:
    known = sum(len(found) for _, found in report.intended.values())
    bad = [sum(one.unlawful[side] for one in report.compared.differences) for side in (0, 1)]
    unlawful = "".join(
        f", {count} times {name} is unlawful" for name, count in zip(report.names, bad, strict=True) if count
    )
    return (
        f"{report.compared.probed} packets each: {len(report.compared.differences)} differ, {known} intended, "
        f"{len(report.unknown)} unknown{unlawful}; {report.seconds:.1f} s"
    )


def comparison_document(report: ComparisonReport) -> dict[str, Any]:
    """Comparison as JSON."""
    return {
        "version": 2,
        "proxies": list(report.names),
        "nodes": list(report.topology.hostnames.values()),
        "packets": report.compared.probed,
        "seconds": round(report.seconds, 1),
        "intended": [
            {
                "id": entry.id,
                "text": entry.text,
                "links": list(entry.links),
                "packets": [_packet(report, one) for one in found],
            }
            for entry, found in report.intended.values()
        ],
        "unknown": [_packet(report, one) for one in report.unknown],
        "not-observed": {reason: len(numbers) for reason, numbers in _reasons(report.compared).items()},
    }


def _packet(report: ComparisonReport, one: ProxyDifference) -> dict[str, Any]:
    question = one.probe
    return {
        "service": question.name,
        "frontend": question.frontend.value,
        "to": question.to,
        "from": _sender(report.topology, question.sender),
        "node": report.topology.hostnames[question.judge],
        "outcomes": [sorted(outcome_kinds(side)) for side in one.seen],
        "unlawful": list(one.unlawful),
        "lawful": _lawful(one),
        "clauses": list(one.expectation.clauses),
    }
