"""Every mode by one command, as a person starts it: both variants of iptables, one result, nothing left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import eventually

KPROXY = '["{python}", "-m", "kproxy", "run", "--config", "{config}"]'
IDLE = '["sh", "-c", "exec sleep 1000"]'
CASE = "cluster-ip.reached-from-everywhere"
PATIENCE = 30.0


@contextmanager
def judging(where: Path, command: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`kproxy conformance run` without a mode, on this kernel, of a subject that has iptables mode alone."""
    (where / "mine.toml").write_text(f'name = "mine"\nmodes = ["iptables"]\ncommand = {command}\n')
    fixed = ("--proxy", "mine.toml", "--kernel", "host", "--case", CASE)
    process = subprocess.Popen(
        (sys.executable, "-m", "kproxy", "conformance", "run", *fixed, *arguments),
        cwd=where,
        env={**os.environ, "TMPDIR": str(where)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def left_behind(where: Path) -> list[str]:
    """Processes that have that folder in their arguments or environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            reported = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:
            continue
        if str(where).encode() in reported:
            found.append(f"{path.name}: {reported[:200]!r}")
    return found


def test_each_variant_of_iptables_is_a_run_and_finds_its_own_program(tmp_path: Path) -> None:
    with judging(tmp_path, KPROXY, "--json", "results.json") as process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    document = json.loads((tmp_path / "results.json").read_text())
    versions = {run["name"]: run["environment"]["iptables"] for run in document["runs"]}
    assert versions.keys() == {"iptables nft", "iptables legacy"}
    assert "nf_tables" in versions["iptables nft"]
    assert "legacy" in versions["iptables legacy"]
    assert [entry["result"] for run in document["runs"] for entry in run["results"]] == ["passed"] * 2
    assert "mine: 2 runs, 2 cases in " in out
    assert not (tmp_path / "evidence").exists()


def test_a_subject_that_does_not_start_has_failed_with_the_reason_in_each_run(tmp_path: Path) -> None:
    with judging(tmp_path, '["/no/such/proxy"]') as process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 1, out
    for variant in ("nft", "legacy"):
        assert f"failed iptables {variant}: " in out
    assert "ended with 127" in out


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 130),
        (signal.SIGINT, 130),
        (signal.SIGKILL, -9),
    ],
)
def test_a_signal_ends_all_runs_and_leaves_no_process(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    with judging(tmp_path, IDLE) as process:
        begun = eventually(lambda: any("sleep" in found for found in left_behind(tmp_path)), PATIENCE)
        assert begun, "no subject was found: the last assertions would mean nothing"
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    assert eventually(lambda: not left_behind(tmp_path), PATIENCE), left_behind(tmp_path)
    if number is not signal.SIGKILL:
        assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
