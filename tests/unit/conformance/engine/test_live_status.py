"""Progress where there is no terminal, and of a run inside another."""

from __future__ import annotations

import io
import time

import pytest

from kproxy.conformance.engine import child_process
from kproxy.conformance.engine.live_status import PAUSE, StatusBoard
from kproxy.console import Console


def test_without_a_terminal_progress_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    printed = io.StringIO()
    board = StatusBoard(Console(file=printed, width=200), None, ["nftables"])
    board.update("nftables", "1 of 9 cases")
    assert printed.getvalue() == ""
    now[0] += PAUSE
    board.update("nftables", "5 of 9 cases")
    board.update("nftables", "6 of 9 cases")
    board.show("a table")
    assert printed.getvalue() == "nftables: 5 of 9 cases\n"


def test_a_run_inside_another_reports_each_step_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "is_child_process", lambda: True)
    printed = io.StringIO()
    board = StatusBoard(Console(file=printed, width=200), None, [""])
    board.update("", "1 of 9 cases")
    board.update("", "2 of 9 cases")
    assert printed.getvalue() == "1 of 9 cases\n2 of 9 cases\n"
