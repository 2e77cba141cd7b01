"""A subject of several processes with mounts of its own, judged by the command and as pytest's item."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

CASE = "cluster-ip.every-endpoint-of-six"
HERE = ("--kernel", "host", "--proxy", "mine.toml")
SUBJECT = """
name = "mine"
modes = ["nftables"]

[mounts]
"/run" = "tmpfs"
"/sys/fs/bpf" = "bpf"

[[processes]]
name = "helper"
command = ["sh", "-c", "sleep 0.3; touch /run/kproxy-test-subjects {directory}/ready; exec sleep 1000"]
ready = ["test", "-e", "{directory}/ready"]

[[processes]]
name = "proxy"
command = ["sh", "-ec", "test -e /run/kproxy-test-subjects; mkdir /sys/fs/bpf/mine; exec {python} -m kproxy run --config {config}"]
"""
WITHOUT_MOUNTS = """
name = "mine"
modes = ["nftables"]
command = ["{python}", "-m", "kproxy", "run", "--config", "{config}"]
"""

NO_PROCESSES = 'mount -t tmpfs tmpfs /run; echo 0 > /proc/sys/user/max_pid_namespaces; exec "$@"'
WITHOUT_ROOMS = ("unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-ec", NO_PROCESSES, "sh")
"""A place where no PID namespace can be made (user_namespaces(7), ``/proc/sys/user``), as in some containers."""
NO_ROOM = "no processes and mounts of a subject's own: unshare: "


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(SUBJECT, encoding="utf-8")
    return tmp_path


def run(place: Path, *arguments: str, where: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*where, sys.executable, "-m", *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_processes_start_in_order_share_mounts_and_the_machine_sees_none_of_it(place: Path) -> None:
    done = run(place, "kproxy", "conformance", "run", *HERE, "--case", CASE, "--json", "-")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert [entry["result"] for entry in document["results"]] == ["passed"]
    assert document["environment"]["isolation"] == "network, processes, mounts"
    assert document["environment"]["claims"] == "every feature"
    assert not Path("/run/kproxy-test-subjects").exists()
    assert not Path("/sys/fs/bpf/mine").exists()


def test_a_process_that_ends_is_named(place: Path) -> None:
    broken = SUBJECT.replace("exec sleep 1000", "exit 4")
    (place / "mine.toml").write_text(broken, encoding="utf-8")
    done = run(place, "kproxy", "conformance", "run", *HERE, "--case", CASE)
    assert done.returncode == 1, done.stdout + done.stderr
    assert " ended helper with 4: " in done.stdout
    assert "command: sh -c 'sleep 0.3; " in done.stdout


def test_a_mount_point_that_does_not_exist_is_reported(place: Path) -> None:
    (place / "mine.toml").write_text(SUBJECT.replace('"/run"', '"/no/such"'), encoding="utf-8")
    done = run(place, "kproxy", "conformance", "run", *HERE, "--case", CASE)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "/no/such: mount point does not exist" in done.stdout


def test_where_no_sandbox_can_be_made_it_is_judged_without_and_the_results_report_so(place: Path) -> None:
    (place / "mine.toml").write_text(WITHOUT_MOUNTS, encoding="utf-8")
    arguments = ("kproxy", "conformance", "run", *HERE, "--case", CASE, "--json", "-")
    done = run(place, *arguments, where=WITHOUT_ROOMS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["environment"]["isolation"].startswith(f"network; {NO_ROOM}")


def test_where_no_room_can_be_made_a_subject_that_mounts_is_refused(place: Path) -> None:
    done = run(place, "kproxy", "conformance", "run", *HERE, "--case", CASE, where=WITHOUT_ROOMS)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"[mounts]: {NO_ROOM}" in done.stderr


def test_an_item_of_pytest_is_judged_by_real_packets(place: Path) -> None:
    done = run(
        place, "pytest", "--pyargs", "kproxy.conformance", *HERE, "-k", CASE, "-p", "no:cacheprovider", "-rA"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"PASSED kproxy.conformance::{CASE}" in done.stdout
