"""The round trip through User-Mode Linux: output, status, files, signals; nothing left; time that is skipped."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.lab.kernels import boot
from kproxy.lab.kernels.abilities import Ability
from kproxy.lab.kernels.uml import UmlKernel
from kproxy.lab.namespaces import LabError
from tests.support.leftovers import BOASTER, BOASTERS_CASE, Leftovers

from .conftest import InGuest

PATIENCE = 60.0
POWER_OFF = "import ctypes; ctypes.CDLL(None).reboot(0x4321FEDC)"


def test_a_command_is_root_there_and_its_output_and_status_come_back(in_guest: InGuest) -> None:
    status, out, error = in_guest("id -u; grep -c 'User Mode Linux' /proc/cpuinfo; echo no >&2; exit 7")
    assert (status, out, error) == (7, "0\n1\n", "no\n")


def test_a_signal_that_ends_a_command_is_its_status(in_guest: InGuest) -> None:
    assert in_guest("kill -KILL $$")[0] == 128 + signal.SIGKILL


def test_files_are_the_hosts_and_scratch_is_not(in_guest: InGuest, tmp_path: Path) -> None:
    status, _, error = in_guest("echo kept > file; echo lost > /run/file")
    assert (status, error) == (0, "")
    assert (tmp_path / "file").read_text() == "kept\n"
    assert not Path("/run/file").exists()


def test_nothing_is_left_of_a_guest_that_has_ended(in_guest: InGuest, left_behind: Leftovers) -> None:
    assert in_guest("sleep 1000 & exit 0")[0] == 0
    assert left_behind.now() == []


def test_a_kernel_that_dies_is_an_error_with_its_last_output(
    in_guest: InGuest, left_behind: Leftovers
) -> None:
    with pytest.raises(LabError, match="ended before its command did"):
        in_guest(f"grep -q 'User Mode Linux' /proc/cpuinfo && {sys.executable} -c '{POWER_OFF}'")
    assert left_behind.now() == []


def test_every_ability_works_when_used(kernel: UmlKernel) -> None:
    """What the configuration promises, the kernel does."""
    used = boot.probe_kernel(kernel)
    assert used.keys() == set(Ability)
    assert {a.value: reason for a, reason in used.items() if reason and not kernel.obstacles[a]} == {}


# ------------------------------------------------------------------------------ the command


def conformance(kproxy: tuple[str, ...], place: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (*kproxy, "conformance", "run", "--kernel", "uml", "--mode", "iptables", *arguments),
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "KPROXY_PROGRESS": "all"},
    )


def test_sctp_beside_tcp_and_udp_is_judged_the_results_are_written_here_and_nothing_is_left(
    kproxy: tuple[str, ...], tmp_path: Path, left_behind: Leftovers
) -> None:
    arguments = ("--case", "protocols.sctp-*", "--json", "results.json")
    with conformance(kproxy, tmp_path, *arguments) as process:
        out, _ = process.communicate()
    assert process.returncode == 0, out
    assert out.startswith("kernel: uml (")
    document = json.loads((tmp_path / "results.json").read_text())
    results = {entry["id"]: entry["result"] for entry in document["results"]}
    assert results == {
        "protocols.sctp-beside-the-others": "passed",
        "protocols.sctp-node-port": "passed",
        "protocols.sctp-without-sockets": "passed",
    }
    assert document["environment"]["kernel-choice"] == "uml"
    assert document["environment"]["time"] == "real"
    assert left_behind.now() == []


def test_a_proxy_that_never_serves_has_failed_with_the_reason_and_nothing_is_left(
    kproxy: tuple[str, ...], tmp_path: Path, left_behind: Leftovers
) -> None:
    (tmp_path / "idle.toml").write_text('name = "idle"\nmodes = ["iptables"]\ncommand = ["sleep", "1000"]\n')
    arguments = ("--proxy", "idle.toml", "--case", "cluster-ip.every-endpoint-of-six", "--sync-timeout", "2")
    with conformance(kproxy, tmp_path, *arguments) as process:
        out, _ = process.communicate()
    assert process.returncode == 1, out
    assert "has not applied" in out
    assert left_behind.now() == []


def test_a_case_that_fails_is_status_1_and_nothing_is_left(
    kproxy: tuple[str, ...], tmp_path: Path, left_behind: Leftovers
) -> None:
    (tmp_path / "boaster.toml").write_text(BOASTER)
    arguments = ("--proxy", "boaster.toml", "--mode", "ipvs", "--case", BOASTERS_CASE)
    with conformance(kproxy, tmp_path, *arguments) as process:
        out, _ = process.communicate()
    assert process.returncode == 1, out
    assert left_behind.now() == []


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    """Until it has printed that word."""
    assert process.stdout
    while word not in (line := process.stdout.readline()):
        assert line, "the run ended before it began"


def guests_below(process: subprocess.Popen[str]) -> list[int]:
    """The kernels that a command started: children of its guards."""

    def children(parent: int) -> list[int]:
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        return [int(word) for word in text.split()]

    return [kernel for guard in children(process.pid) for kernel in children(guard)]


def test_the_cases_of_a_guest_that_dies_are_broken_and_those_of_the_other_are_judged(
    kproxy: tuple[str, ...], tmp_path: Path, left_behind: Leftovers
) -> None:
    arguments = ("--case", "protocols.sctp-*", "--guests", "2", "--json", "results.json")
    with conformance(kproxy, tmp_path, *arguments) as process:
        wait_for(process, "guest ")
        os.kill(guests_below(process)[0], signal.SIGKILL)
        out, _ = process.communicate()
    assert process.returncode == 2, out
    assert "guest 1: the guest's kernel ended before its command did (killed by SIGKILL)" in out
    results = [entry["result"] for entry in json.loads((tmp_path / "results.json").read_text())["results"]]
    assert sorted(set(results)) == ["broken", "passed"]
    assert left_behind.now() == []


def test_a_guard_that_is_killed_takes_its_guest_along(
    kproxy: tuple[str, ...], tmp_path: Path, left_behind: Leftovers
) -> None:
    with conformance(kproxy, tmp_path, "--case", "protocols.sctp-*") as process:
        wait_for(process, "changing")
        guard = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(guard), signal.SIGKILL)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, out
    assert "its guard was killed" in out
    assert left_behind.gone(), left_behind.now()


SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 130, signal.SIGKILL: -signal.SIGKILL}
"""What may end a run, and the exit status of one that it ended."""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_run_and_leaves_nothing(
    number: signal.Signals, kproxy: tuple[str, ...], tmp_path: Path, left_behind: Leftovers
) -> None:
    with conformance(kproxy, tmp_path, "--case", "cluster-ip.*") as process:
        wait_for(process, "running")
        assert left_behind.now() != []
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == SIGNALS[number]
    assert left_behind.gone(), left_behind.now()
