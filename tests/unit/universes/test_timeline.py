"""Timelines: one HTML document, well-formed, with all that happened in its order."""

from __future__ import annotations

from html.parser import HTMLParser

from kproxy.universes.draw import draw_schedule
from kproxy.universes.judge import Verdict, Violation
from kproxy.universes.recording import SECOND, Changed, FaultBegan, FaultEnded, Line, LogEnded, Recording
from kproxy.universes.timeline import timeline_html, timeline_rows

SCHEDULE = next(one for one in map(draw_schedule, range(50)) if one.faults)
LINES: list[Line] = [
    *(Changed(at=int(c.at * SECOND), number=n) for n, c in enumerate(SCHEDULE.changes)),
    *(FaultBegan(at=int(f.at * SECOND), number=n) for n, f in enumerate(SCHEDULE.faults)),
    *(FaultEnded(at=int(f.end * SECOND), number=n) for n, f in enumerate(SCHEDULE.faults)),
    LogEnded(at=SECOND, node="a", text="<script>alert(1)</script>"),
]
VERDICT = Verdict(
    judged=7,
    unjudged={},
    violations=(
        Violation(
            at=6.5,
            since=1.0,
            sent=SCHEDULE.probes[0],
            established=False,
            lawful=("dropped",),
            seen="delivered to <b1>",
            clauses=(),
        ),
    ),
)


class Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_all_that_happened_is_a_row_in_the_order_of_time() -> None:
    rows = timeline_rows(SCHEDULE, Recording(tuple(LINES)), VERDICT)
    assert len(rows) == len(SCHEDULE.changes) + 2 * len(SCHEDULE.faults) + 1
    assert [row.at for row in rows] == sorted(row.at for row in rows)


def test_the_document_is_well_formed_and_runs_nothing() -> None:
    parser = Balance()
    text = timeline_html("seed 1", SCHEDULE, Recording(tuple(LINES)), VERDICT)
    parser.feed(text)
    assert parser.open == []
    assert "script" not in parser.seen
    assert parser.seen.count("tr") == len(timeline_rows(SCHEDULE, Recording(tuple(LINES)), VERDICT))
    assert "src=" not in text
