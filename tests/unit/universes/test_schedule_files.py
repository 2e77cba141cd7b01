"""Schedules as files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kproxy.universes.draw import draw_schedule
from kproxy.universes.schedule_files import InvalidSchedule, load_schedule, schedule_source


@pytest.mark.parametrize("seed", range(8))
def test_a_schedule_survives_its_file(seed: int, tmp_path: Path) -> None:
    drawn = draw_schedule(seed)
    (tmp_path / "s.py").write_text(schedule_source(drawn, "A schedule."))
    assert load_schedule(tmp_path / "s.py") == drawn


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "assigns no schedule"),
        ("SCHEDULE = (", "never closed"),
        ("SCHEDULE = 3", "is no schedule"),
        ("SCHEDULE = Schedule(seed=__import__('os'))", "is not part of a schedule"),
        ("SCHEDULE = Schedule(seed=1, colour=3)", "colour"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(text)
    with pytest.raises(InvalidSchedule, match=reason):
        load_schedule(tmp_path / "s.py")


def test_a_schedule_without_the_service_that_it_probes_is_refused(tmp_path: Path) -> None:
    drawn = draw_schedule(1)
    (tmp_path / "s.py").write_text(schedule_source(replace(drawn, changes=drawn.changes[1:2]), "Cut."))
    with pytest.raises(InvalidSchedule, match="cannot be played"):
        load_schedule(tmp_path / "s.py")
