"""The round trip through User-Mode Linux: output, status, files, signals; nothing left; time that is skipped."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kproxy.lab.kernels import boot
from kproxy.lab.kernels.abilities import Ability
from kproxy.lab.kernels.uml import Time, UmlKernel
from kproxy.lab.namespaces import LabError

from .conftest import InGuest

PATIENCE = 20.0
POWER_OFF = "import ctypes; ctypes.CDLL(None).reboot(0x4321FEDC)"
LeftBehind = Callable[[], list[str]]


def eventually(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


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


def test_nothing_is_left_of_a_guest_that_has_ended(in_guest: InGuest, left_behind: LeftBehind) -> None:
    assert in_guest("sleep 1000 & exit 0")[0] == 0
    assert left_behind() == []


def test_a_kernel_that_dies_is_an_error_with_its_last_words(
    in_guest: InGuest, left_behind: LeftBehind
) -> None:
    with pytest.raises(LabError, match="ended before its command did"):
        in_guest(f"grep -q 'User Mode Linux' /proc/cpuinfo && {sys.executable} -c '{POWER_OFF}'")
    assert left_behind() == []


def test_every_ability_works_when_used(kernel: UmlKernel) -> None:
    """What the configuration promises, the kernel does."""
    assert boot.probe(kernel).keys() == set(Ability)
    broken = {
        a.value: reason for a, reason in boot.probe(kernel).items() if reason and not kernel.findings[a]
    }
    assert broken == {}


def test_in_virtual_time_hours_pass_in_seconds(kernel: UmlKernel, in_guest: InGuest) -> None:
    if kernel.findings[Ability.TIME_TRAVEL]:
        pytest.fail("this kernel has no time-travel mode: kproxy lab kernel build")
    begun = time.monotonic()
    status, out, _ = in_guest("date +%s; sleep 10800; date +%s", Time.VIRTUAL)
    before, after = map(int, out.split())
    assert status == 0
    assert 10800 <= after - before < 10810
    assert time.monotonic() - begun < PATIENCE


# ------------------------------------------------------------------------------ the command


def conformance(kproxy: tuple[str, ...], place: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (*kproxy, "conformance", "run", "--kernel", "uml", "--mode", "iptables", *words),
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("time", [Time.REAL, Time.VIRTUAL])
def test_sctp_beside_tcp_and_udp_is_judged_and_the_results_are_written_here(
    time: Time, kproxy: tuple[str, ...], tmp_path: Path
) -> None:
    words = ("--case", "protocols.*", "--json", "results.json", "--time", time.value)
    with conformance(kproxy, tmp_path, *words) as process:
        out, _ = process.communicate()
    assert process.returncode == 0, out
    assert out.startswith("kernel: uml (")
    document = json.loads((tmp_path / "results.json").read_text())
    results = {entry["id"]: entry["result"] for entry in document["results"]}
    assert results["protocols.sctp-beside-the-others"] == results["protocols.sctp-node-port"] == "passed"
    assert set(results.values()) == {"passed"}
    assert document["environment"]["kernel-choice"] == "uml"
    assert document["environment"]["time"] == time.value


def test_a_proxy_that_never_serves_is_status_2_with_the_reason(
    kproxy: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "idle.toml").write_text('name = "idle"\nmodes = ["iptables"]\ncommand = ["sleep", "1000"]\n')
    words = ("--proxy", "idle.toml", "--case", "cluster-ip.every-endpoint-of-six", "--patience", "2")
    with conformance(kproxy, tmp_path, *words) as process:
        out, _ = process.communicate()
    assert process.returncode == 2, out
    assert "has not applied" in out


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)]
)
@pytest.mark.parametrize("time", [Time.REAL, Time.VIRTUAL])
def test_a_signal_ends_the_run_and_leaves_nothing(
    number: signal.Signals,
    status: int,
    time: Time,
    kproxy: tuple[str, ...],
    tmp_path: Path,
    left_behind: LeftBehind,
) -> None:
    with conformance(kproxy, tmp_path, "--time", time.value) as process:
        assert process.stdout
        while "asking" not in (line := process.stdout.readline()):
            assert line, "the run ended before it began"
        assert left_behind() != []
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    assert eventually(lambda: left_behind() == []), left_behind()
