"""The bench goes where its mode can run, and measures there."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT


def test_a_mode_that_this_kernel_may_lack_is_measured_in_a_guest(tmp_path: Path) -> None:
    few = ("--size", "3x1", "--repeat", "1", "--changes", "2", "--additions", "1")
    command = (sys.executable, "-m", "tests.bench", "--mode", "ipvs", "--kernel", "uml", *few)
    done = subprocess.run(
        (*command, "--results", str(tmp_path)), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("kernel: uml (")
    document = json.loads((tmp_path / "bench.json").read_text())
    assert document["environment"]["kernel-choice"] == "uml"
    (result,) = document["results"]
    assert (result["mode"], result["size"]) == ("ipvs", "3x1")
    assert len(result["endpoint_change_seconds"]) == 2
