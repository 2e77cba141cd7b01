"""Progress of a run: counts, failures, time left."""

from __future__ import annotations

import time

from kproxy.conformance.engine.progress import RunProgress


def test_progress_has_counts_failures_and_the_time_left_in_proportion() -> None:
    progress = RunProgress(total=8, begun=time.monotonic() - 10)
    assert str(progress) == "0 of 8 cases"
    progress.add(2, 0)
    assert str(progress) == "2 of 8 cases, about 30 s left"
    progress.add(2, 1)
    assert str(progress) == "4 of 8 cases, 1 failed, about 10 s left"
    progress.add(4, 1)
    assert str(progress) == "8 of 8 cases, 2 failed"
