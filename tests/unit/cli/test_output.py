"""A reader that closes the pipe of a command's output has read enough: that is no failure, and no other pipe's end is that."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.cli.output import run_until_closed
from tests.support.paths import ROOT

DUMP = ROOT / "docs/examples/cluster.yaml"
RULES = ROOT / "docs/examples/trace/iptables-save.txt"
KPROXY, KUBE_ROUTER = ROOT / "docs/results/kproxy.json", ROOT / "docs/results/kube-router.json"
SIMULATED = "--testbed simulator --mode nftables"
NO_VERDICT = 128 + signal.SIGPIPE


def with_closed_output(
    arguments: str, place: Path, errors: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """A run of the program whose standard output nobody reads, buffered as it is where a user types it."""
    reading, writing = os.pipe()
    os.close(reading)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    try:
        return subprocess.run(
            [sys.executable, "-m", "kproxy", *shlex.split(arguments)],
            stdout=writing,
            stderr=errors,
            text=True,
            check=False,
            cwd=place,
            env=environment,
        )
    finally:
        os.close(writing)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("--help", 0),
        ("--version", 0),
        ("version", 0),
        ("run --help", 0),
        ("run --version", 0),
        ("kubectl --help", 0),
        ("kubectl explain --help", 0),
        ("completion zsh", 0),
        ("conformance list", 0),
        ("conformance show cluster-ip.slices-are-merged", 0),
        (f"conformance report {KPROXY} {KUBE_ROUTER}", 0),
        (f"conformance report {KPROXY} --markdown -", 0),
        ("spec show", 0),
        (f"spec explain -f {DUMP} --from host/node-b --to svc/dns:53/udp", 0),
        (f"trace -f {RULES} --from 10.244.1.11 --to 10.96.4.0:80 --via veth-a1", 0),
        ("lab doctor", NO_VERDICT),
        (f"conformance run {SIMULATED} --case no-endpoints.*", NO_VERDICT),
        (f"conformance run {SIMULATED} --case no-endpoints.* --json -", NO_VERDICT),
        (f"conformance fuzz {SIMULATED} --worlds 2 --seed 1", NO_VERDICT),
    ],
)
def test_a_closed_pipe_ends_a_print_well_and_a_judgement_without_a_verdict(
    arguments: str, status: int, tmp_path: Path
) -> None:
    done = with_closed_output(arguments, tmp_path)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert "BrokenPipeError" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status"),
    [("conformance list", 0), (f"conformance run {SIMULATED} --case no-endpoints.*", NO_VERDICT)],
)
def test_messages_may_go_to_the_same_closed_pipe(arguments: str, status: int, tmp_path: Path) -> None:
    assert with_closed_output(arguments, tmp_path, subprocess.STDOUT).returncode == status


def test_a_wrong_command_line_keeps_its_status(tmp_path: Path) -> None:
    """Control: a closed pipe gives no other status to a command that prints nothing there."""
    done = with_closed_output("conformance list --case nope", tmp_path)
    assert (done.returncode, "no case matches nope" in done.stderr) == (2, True)


def test_the_end_of_another_pipe_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that the lab writes to and that ends is no reader of our output."""

    def breaks(*_: object, **__: object) -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_until_closed(breaks, 0)
    monkeypatch.setattr("kproxy.conformance.command.list_cases", breaks)
    assert main(["conformance", "list"]) == 2
    assert "internal error" in capsys.readouterr().err
