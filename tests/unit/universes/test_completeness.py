"""What a guest printed is a recording of a universe only if each probe and health check has a result."""

from __future__ import annotations

import pytest

from kproxy.conformance.case import Target, TargetKind, Vantage, VantageKind
from kproxy.model.network import Family
from kproxy.universes.launch import UniverseRun, run_of_output
from kproxy.universes.recording import Failed, HealthChecked, Line, Probed, StateRead, encode_line
from kproxy.universes.schedule import Schedule, TimedCheck, TimedProbe

FROM = Vantage(VantageKind.POD, "a", "a2")
SCHEDULE = Schedule(
    seed=1,
    changes=(),
    family=Family.IPV4,
    probes=tuple(
        TimedProbe(at=at, sender=FROM, to=Target(TargetKind.CLUSTER_IP, "web")) for at in (1.0, 2.0)
    ),
    checks=(TimedCheck(at=3.0, sender=FROM, node="a"),),
)
FIRST, SECOND = (Probed(at=at, until=at, number=at - 1, outcomes=("rejected",)) for at in (1, 2))
CHECK = HealthChecked(at=3, until=3, number=0, text="200")


def run(*lines: Line, end: bytes = b"") -> UniverseRun:
    return run_of_output(1, SCHEDULE, b"".join(map(encode_line, lines)) + end)


def test_a_recording_with_a_result_for_each_is_one() -> None:
    assert (run(FIRST, SECOND, CHECK).error, run(CHECK, SECOND, FIRST).error) == ("", "")


@pytest.mark.parametrize(("lines", "missing"), [((), 3), ((FIRST, FIRST, CHECK), 1), ((FIRST, SECOND), 1)])
def test_one_without_results_is_broken_and_not_lawful(lines: tuple[Line, ...], missing: int) -> None:
    found = run(*lines)
    assert found.recording is None
    assert found.error == f"{missing} of 3 probes and health checks have no result"


def test_one_that_was_stopped_or_reports_why_it_ended_may_lack_some() -> None:
    stopped = StateRead(at=1, namespace="a", command="ip route", text="")
    for line in (stopped, Failed(at=1, subject=False, text="a tool is missing")):
        assert run(FIRST, line).error == ""


def test_a_line_that_was_cut_off_breaks_its_universe_alone() -> None:
    found = run(FIRST, SECOND, end=b'{"type":"check","at":3,"un')
    assert found.error.startswith("its output is no recording: ")
