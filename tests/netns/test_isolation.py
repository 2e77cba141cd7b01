"""The machine's own network namespace is as it was, and nothing runs on, however a run ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.marked_processes import processes

COMMANDS = {
    "links": "ip -o link",
    "addresses": "ip -o addr",
    "IPv4 routes": "ip -4 route show table all",
    "IPv6 routes": "ip -6 route show table all",
    "IPv4 rules": "ip -4 rule",
    "IPv6 rules": "ip -6 rule",
    "named namespaces": "ip netns list",
    "nftables": "nft list ruleset",
    "iptables-legacy": "iptables-legacy-save",
    "ip6tables-legacy": "ip6tables-legacy-save",
    "ipset": "ipset list -n",
    "conntrack": "conntrack -L",
}
VOLATILE = re.compile(r" expires \d+sec| expires -?\d+| valid_lft \w+| preferred_lft \w+|^#.*$", re.MULTILINE)
COUNTERS = {"nf_conntrack_count", "tcp_mem", "udp_mem", "stat_refresh"}
"""Files below /proc/sys/net that the kernel changes by itself."""

RUN = (
    sys.executable,
    "-m",
    "kproxy",
    "conformance",
    "run",
    "--mode",
    "iptables",
    "--kernel",
    "host",
    "--case",
    "cluster-ip.*",
    "--case",
    "node-port.*",
)


def machine() -> dict[str, str]:
    """All of this machine's own network namespace that a lab might touch."""
    seen = {name: _output(command) for name, command in COMMANDS.items()}
    seen["conntrack"] = "\n".join(sorted(re.findall(r"src=\S+ dst=\S+", seen["conntrack"])))
    for path in sorted(Path("/proc/sys/net").rglob("*")):
        if path.is_file() and path.name not in COUNTERS:
            seen[str(path)] = _text(path)
    return seen


def _output(command: str) -> str:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    return VOLATILE.sub("", done.stdout)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {name: (before[name], after.get(name, "")) for name in before if before[name] != after.get(name)}


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


def start(mark: str, directory: Path) -> subprocess.Popen[bytes]:
    as_in_the_background = ("env", "--ignore-signal=INT")
    command = [*as_in_the_background, *RUN, "--evidence", str(directory)]
    environment = {**os.environ, "KPROXY_TEST_MARK": mark, "TMPDIR": str(directory), "KPROXY_PROGRESS": "all"}
    with (directory / "output").open("wb") as output:
        return subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )


def wait_for(directory: Path, text: str) -> None:
    deadline = time.monotonic() + 30
    while text not in (output := (directory / "output").read_text()):
        assert time.monotonic() < deadline, output
        time.sleep(0.01)


def end_of_all(mark: str) -> list[str]:
    """What still runs after a moment of grace."""
    deadline = time.monotonic() + 5
    while (left := processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def test_a_run_leaves_the_machine_as_it_was(mark: str, tmp_path: Path) -> None:
    before = machine()
    running = start(mark, tmp_path)
    wait_for(tmp_path, "running")
    assert len(processes(mark)) >= 3, "the harness and a proxy on each node"
    assert running.wait(60) == 0, (tmp_path / "output").read_text()
    assert differences(before, machine()) == {}
    assert end_of_all(mark) == []
    assert list(tmp_path.glob("kproxy-lab-*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("moment", ["changing", "running"])
def test_a_run_that_is_cut_short_leaves_nothing(
    mark: str, tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    before = machine()
    running = start(mark, tmp_path)
    wait_for(tmp_path, moment)
    running.send_signal(number)
    code = running.wait(10)
    assert code != 0
    assert end_of_all(mark) == []
    assert differences(before, machine()) == {}
    if number is not signal.SIGKILL:
        assert list(tmp_path.glob("kproxy-lab-*")) == []
