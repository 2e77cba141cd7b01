"""Virtual time: hours that pass in seconds, and a run that lives in them.  Needs a kernel of `kproxy lab kernel build`."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from kproxy.lab.kernels.uml import Time
from tests.support.leftovers import Leftovers

from .conftest import InGuest

DAY = 24 * 3600


pytestmark = pytest.mark.usefixtures("travels")


def test_a_day_passes_in_less_than_a_minute(in_guest: InGuest) -> None:
    begun = time.monotonic()
    status, out, _ = in_guest(f"date +%s; sleep {DAY}; date +%s", Time.VIRTUAL)
    before, after = map(int, out.split())
    assert status == 0
    assert DAY <= after - before < DAY + 10
    assert time.monotonic() - begun < 60


def test_cases_that_wait_are_judged_and_the_report_reports_in_which_time(
    kproxy: tuple[str, ...], tmp_path: Path, left_behind: Leftovers
) -> None:
    arguments = (
        "--mode",
        "iptables",
        "--case",
        "affinity.time-*",
        "--json",
        "results.json",
        "--time",
        "virtual",
    )
    done = subprocess.run(
        (*kproxy, "conformance", "run", *arguments), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "results.json").read_text())
    assert [entry["result"] for entry in document["results"]] == ["passed"] * len(document["results"])
    assert document["environment"]["time"] == "virtual"
    assert left_behind.now() == []
