"""Comparison as text and as JSON, and the progress line."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TextIO

from kproxy.conformance.case import TargetKind, VantageKind
from kproxy.conformance.engine.differences import ProbeDifference, outcome_kinds
from kproxy.conformance.engine.side_by_side import SideBySideResult
from kproxy.conformance.generate.from_dump import PROBE_POD
from kproxy.conformance.subjects.subject import Subject
from kproxy.conformance.testbed import Observation
from kproxy.lab.probes.observation import Socket
from kproxy.lab.topology import Topology
from kproxy.model.network import Packet
from kproxy.spec.outcome import Delivered
from kproxy.spec.topics import topic_of_clause
from kproxy.tools.compare.known_differences import DocumentedDifference, documented_difference

_EXAMPLES = 3
_FRONTENDS = {
    TargetKind.CLUSTER_IP: "cluster IP",
    TargetKind.EXTERNAL_IP: "external IP",
    TargetKind.VIP: "load balancer IP",
    TargetKind.NODE_PORT: "node port",
    TargetKind.NODE_PORT_SECOND: "node port at another address of the node",
    TargetKind.NODE_PORT_LOCALHOST: "node port at localhost",
    TargetKind.UNALLOCATED: "cluster IP that no Service has",
}
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
    subjects: tuple[Subject, Subject]
    topology: Topology
    compared: SideBySideResult
    seconds: float

    @cached_property
    def intended(self) -> dict[str, tuple[DocumentedDifference, list[ProbeDifference]]]:
        """Differences that are documented, by the entry's ID."""
        found: dict[str, tuple[DocumentedDifference, list[ProbeDifference]]] = {}
        for one in self.compared.differences:
            entry = documented_difference(one, self.modes)
            if entry is not None:
                found.setdefault(entry.id, (entry, []))[1].append(one)
        return found

    @cached_property
    def unknown(self) -> list[ProbeDifference]:
        """Differences that are not documented."""
        return [one for one in self.compared.differences if documented_difference(one, self.modes) is None]

    def declared(self) -> Iterator[tuple[str, str, str]]:
        """Declarations that one side alone makes, which first packets do not show: the side's name, a text, a link or nothing."""
        sides = tuple(zip(self.subjects, self.modes, strict=True))
        claimed = [subject.claimed_features(mode) for subject, mode in sides]
        known = [
            {(one.text, one.link) for one in subject.deviations if one.mode in {mode, ""}}
            for subject, mode in sides
        ]
        for side, other in ((0, 1), (1, 0)):
            for feature in sorted(one.value for one in claimed[side] - claimed[other]):
                yield self.names[side], f"claims {feature}, the other does not", ""
            for text, link in sorted(known[side] - known[other]):
                yield self.names[side], text, link

    def samples(self) -> Iterator[tuple[str, ProbeDifference]]:
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
    for name, text, link in report.declared():
        lines += ["", f"declared of {name}: {text}", *([f"  {link}"] if link else [])]
    for reason, numbers in _reasons(report.compared).items():
        lines += ["", f"not observed, {len(numbers)} packets: {reason}"]
    lines += [f"no server could listen for endpoint {deaf}" for deaf in report.compared.unserved]
    return "\n".join([*lines, "", _sum(report)]) + "\n"


def _intended(
    report: ComparisonReport, entry: DocumentedDifference, found: Sequence[ProbeDifference]
) -> Iterator[str]:
    yield f"intended: {entry.text}"
    yield from (f"  {link}" for link in entry.links)
    for id in sorted(entry.clauses & {id for one in found for id in one.probe.clauses}):
        yield f"  clause {id} (docs/spec/topics/{topic_of_clause(id).name}.md)"
    services = len({one.instance.case.id for one in found})
    yield f"  {len(found)} packet{'s' * (len(found) > 1)} to {services} Service{'s' * (services > 1)}, as"
    for one in _samples(found):
        yield f"    {_what(report.topology, one)}: {_both(report, one)}"


def _samples(found: Sequence[ProbeDifference]) -> Sequence[ProbeDifference]:
    """A few examples, of different Services."""
    by_service = {one.instance.case.id: one for one in reversed(found)}
    return list(reversed(by_service.values()))[:_EXAMPLES]


Key = tuple[object, ...]


def _alike(unknown: Sequence[ProbeDifference]) -> dict[Key, list[ProbeDifference]]:
    """Unknown differences grouped by Service, port and outcomes."""
    found: dict[Key, list[ProbeDifference]] = {}
    for one in unknown:
        shown = tuple(", ".join(sorted(outcome_kinds(side))) for side in one.seen)
        key = ((one.instance.case.id, _packet_of(one).protocol, _frontend(one), shown), shown)
        found.setdefault(key, []).append(one)
    return found


def _unknown(report: ComparisonReport, alike: Sequence[ProbeDifference], _: object) -> Iterator[str]:
    first = alike[0]
    yield f"unknown: {first.instance.case.id}, {_frontend(first)}"
    for one in alike[:_EXAMPLES]:
        yield f"  {_what(report.topology, one)}"
        for name, seen, bad in zip(report.names, one.seen, one.unlawful, strict=True):
            yield f"    {name}: {_seen(seen)}{'  (unlawful)' if bad else ''}"
        yield f"    lawful: {_lawful(one)}"
    if len(alike) > _EXAMPLES:
        yield f"  and {len(alike) - _EXAMPLES} packets more like these"
    yield f"  clauses: {', '.join(first.probe.clauses)}"


def _what(topology: Topology, one: ProbeDifference) -> str:
    return f"{_sender(topology, one)} -> {_to(one)} ({one.instance.case.id}, {_frontend(one)})"


def _packet_of(one: ProbeDifference) -> Packet:
    return one.instance.bound_packet(one.probe.sender, one.probe.to).packet


def _to(one: ProbeDifference) -> str:
    packet = _packet_of(one)
    return f"{Socket(packet.destination, packet.port)}/{packet.protocol.value}"


def _frontend(one: ProbeDifference) -> str:
    to = one.probe.to
    return (
        f"port that the Service does not have, at its {_FRONTENDS[to.kind]}"
        if to.undefined
        else _FRONTENDS[to.kind]
    )


def _sender(topology: Topology, one: ProbeDifference) -> str:
    who, packet = one.probe.sender, _packet_of(one)
    node, source = topology.hostnames[who.node], packet.source
    match who.kind:
        case VantageKind.HOST:
            return f"node {node}"
        case VantageKind.POD if who.name == PROBE_POD[who.node]:
            return f"a pod on {node}"
        case VantageKind.POD:
            return f"endpoint {source} on {node}"
        case VantageKind.ON_LINK:
            return f"on-link client {source} through {node}"
        case _:
            routed = source == topology.remote_address[who.node][packet.family]
            kind = "routed client" if routed else "client of a source range"
            return f"{kind} {source} through {node}"


def _both(report: ComparisonReport, one: ProbeDifference) -> str:
    return "; ".join(
        f"{name} {', '.join(sorted(outcome_kinds(side)))}"
        for name, side in zip(report.names, one.seen, strict=True)
    )


def _seen(answers: Sequence[Observation]) -> str:
    """Observations, one example of each kind."""
    shown = {", ".join(sorted(outcome_kinds([one]))): one.text for one in reversed(answers)}
    return "; ".join(f"{kind}: {text}" if kind != text else kind for kind, text in sorted(shown.items()))


def _lawful(one: ProbeDifference) -> str:
    found = {
        f"delivered (source {o.source.value})" if isinstance(o, Delivered) else o.value
        for o in one.instance.outcomes(one.probe.expect, one.probe.to)
    }
    return " or ".join(sorted(found))


def _reasons(compared: SideBySideResult) -> dict[str, list[int]]:
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
        "declared": [{"proxy": name, "text": text, "link": link} for name, text, link in report.declared()],
        "not-observed": {reason: len(numbers) for reason, numbers in _reasons(report.compared).items()},
    }


def _packet(report: ComparisonReport, one: ProbeDifference) -> dict[str, Any]:
    bound = one.instance.bound_packet(one.probe.sender, one.probe.to)
    return {
        "service": one.instance.case.id,
        "frontend": _frontend(one),
        "to": _to(one),
        "from": _sender(report.topology, one),
        "node": report.topology.hostnames[bound.node],
        "outcomes": [sorted(outcome_kinds(side)) for side in one.seen],
        "unlawful": list(one.unlawful),
        "lawful": _lawful(one),
        "clauses": list(one.probe.clauses),
    }
