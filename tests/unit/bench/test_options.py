"""Options of the bench: the former name of one still works."""

from __future__ import annotations

import pytest

from tests.bench.__main__ import _parser


def test_the_old_name_of_the_timeout_works_and_reports_the_new_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _parser().parse_args([]).sync_timeout == 600
    assert _parser().parse_args(["--sync-timeout", "7"]).sync_timeout == 7
    assert capsys.readouterr().err == ""
    assert _parser().parse_args(["--patience", "7"]).sync_timeout == 7
    assert "--patience is now called --sync-timeout" in capsys.readouterr().err
