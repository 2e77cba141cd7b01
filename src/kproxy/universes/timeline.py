"""Timeline of a universe as one HTML file: faults as bars, changes, packets and logs in the order of time. Pure.

Above, a drawing with a lane for the changes, one for the faults of API server and machine, one for each node, and one for packets; below,
a table of the same. Nothing is loaded from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from kproxy.conformance.case.descriptions import describe_step
from kproxy.lab.topology import NODES
from kproxy.universes.judge import Verdict
from kproxy.universes.recording import SECOND, Changed, FaultBegan, FaultEnded, LogEnded, Recording
from kproxy.universes.schedule import Schedule
from kproxy.universes.story import describe_fault, describe_sent

_WIDTH, _LANE, _LEFT = 1200, 26, 110
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; max-width: 90em }
table { border-collapse: collapse } td { padding: 2px 10px; vertical-align: top; border-top: 1px solid #ddd }
td:first-child { font-family: monospace; text-align: right } .fault td { background: #fff3d6 }
.unlawful td { background: #ffd9d6 } .change td { background: #e4eefb } pre { white-space: pre-wrap }
"""


@dataclass(frozen=True, slots=True)
class Row:
    """Row of the table; ``kind``: of `_STYLE`."""

    at: float
    kind: str
    text: str


def timeline_html(title: str, schedule: Schedule, recording: Recording, verdict: Verdict) -> str:
    """HTML document."""
    rows = "\n".join(
        f'<tr class="{row.kind}"><td>{row.at:.6f}</td><td>{escape(row.text)}</td></tr>'
        for row in timeline_rows(schedule, recording, verdict)
    )
    logs = "\n".join(
        f"<h2>Log of node {line.node}</h2><pre>{escape(line.text)}</pre>"
        for line in recording.lines
        if isinstance(line, LogEnded)
    )
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    what = f"{verdict.judged} packets judged, {len(verdict.violations)} unlawful. Times are seconds of the universe."
    return (
        f"<!doctype html><html lang=en><head>{head}</head><body><h1>{escape(title)}</h1><p>{what}</p>\n"
        f"{_drawing(schedule, verdict)}\n<table>{rows}</table>\n{logs}</body></html>\n"
    )


def timeline_rows(schedule: Schedule, recording: Recording, verdict: Verdict) -> list[Row]:
    """Changes, faults and unlawful packets, in the order of time."""
    return sorted((*_events(schedule, recording), *_unlawful(verdict)), key=lambda row: row.at)


def _events(schedule: Schedule, recording: Recording) -> Iterator[Row]:
    for line in recording.lines:
        at = line.at / SECOND
        match line:
            case Changed(number=number):
                yield Row(at, "change", describe_step(schedule.changes[number].step))
            case FaultBegan(number=number):
                yield Row(at, "fault", describe_fault(schedule.faults[number]))
            case FaultEnded(number=number):
                yield Row(at, "fault", f"end of: {describe_fault(schedule.faults[number])}")
            case _:
                pass


def _unlawful(verdict: Verdict) -> Iterator[Row]:
    for one in verdict.violations:
        lawful = " or ".join(one.lawful)
        text = f"{describe_sent(one)}: {one.seen}; lawful: {lawful}; clauses: {', '.join(one.clauses)}"
        yield Row(one.at, "unlawful", text)


def _drawing(schedule: Schedule, verdict: Verdict) -> str:
    end = max([schedule.end + 1.0, *(one.at for one in verdict.violations)])
    lanes = ("changes", "API, machine", *(f"node {node}" for node in NODES), "unlawful")

    def x(at: float) -> float:
        return _LEFT + (_WIDTH - _LEFT) * at / end

    parts = [
        f'<text x="0" y="{(number + 0.7) * _LANE}">{name}</text>'
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{(number + 1) * _LANE}" y2="{(number + 1) * _LANE}" stroke="#ccc"/>'
        for number, name in enumerate(lanes)
    ]
    parts += [_mark(x(change.at), 0, "#2b6cb0", describe_step(change.step)) for change in schedule.changes]
    for fault in schedule.faults:
        lane = 2 + NODES.index(fault.node) if fault.node else 1
        parts.append(
            f'<rect x="{x(fault.at):.1f}" y="{lane * _LANE + 4}" width="{max(2.0, x(fault.end) - x(fault.at)):.1f}" '
            f'height="{_LANE - 8}" fill="#dd9a1e"><title>{escape(describe_fault(fault))}</title></rect>'
        )
    parts += [_mark(x(one.at), len(lanes) - 1, "#c53030", describe_sent(one)) for one in verdict.violations]
    parts += _scale(x, end, len(lanes))
    return f'<svg viewBox="0 0 {_WIDTH} {(len(lanes) + 1) * _LANE}" width="100%">{"".join(parts)}</svg>'


def _mark(x: float, lane: int, colour: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{lane * _LANE + 4}" width="2" height="{_LANE - 8}" fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _scale(x: Callable[[float], float], end: float, lanes: int) -> Sequence[str]:
    step = next(size for size in (5, 10, 20, 50, 100, 1000) if end / size <= 15 or size == 1000)
    return [
        f'<text x="{x(at):.1f}" y="{(lanes + 0.7) * _LANE}" font-size="12">{at} s</text>'
        for at in range(0, int(end) + 1, step)
    ]
