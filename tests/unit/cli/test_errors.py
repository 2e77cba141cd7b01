"""Mistakes of a user of `kproxy conformance`, and what it reports: status 2, one line, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.cli import main

GOOD = b'name = "x"\nmodes = ["m"]\n'
COMMAND = b'command = ["sleep", "9"]\n'


@pytest.mark.parametrize(
    ("file", "text", "reported"),
    [
        (
            b"",
            "run --proxy nope",
            "proxy nope: No such file or directory; give one of kproxy, kube-proxy, kube-router, or the path",
        ),
        (b"", "run --proxy /", "proxy /: Is a directory"),
        (
            b"\xff\xfe\x98",
            "run --proxy x.toml",
            "proxy x.toml: that is no text, and a subject file is TOML",
        ),
        (b'name = "x"\nmodes = ["m"\n', "run --proxy x.toml", "x.toml: Unclosed array"),
        (
            GOOD + COMMAND + b"reday = 1",
            "run --proxy x.toml",
            "x.toml: unknown keys reday; known are name, modes,",
        ),
        (
            GOOD + b'command = "sleep 9"',
            "run --proxy x.toml",
            '`$.command`; a command is a list of arguments, as ["my-proxy"',
        ),
        (
            GOOD,
            "run --proxy x.toml",
            "x.toml: how it is started is missing: give `command`, or `[[processes]]`",
        ),
        (
            GOOD + b'[[processes]]\nname = "a"',
            "run --proxy x.toml",
            "missing required field `command` - at `$.processes[0]`",
        ),
        (
            GOOD + COMMAND + b'[[processes]]\nname = "a"\ncommand = ["b"]',
            "run --proxy x.toml",
            "give one of them",
        ),
        (
            GOOD + 2 * b'[[processes]]\nname = "a"\ncommand = ["b"]\n',
            "run --proxy x.toml",
            "several processes are called a",
        ),
        (
            GOOD + COMMAND + b'[mounts]\n"run" = "tmpfs"',
            "run --proxy x.toml",
            "a mount point is an absolute path",
        ),
        (
            GOOD + COMMAND + b'[mounts]\n"/run" = "nfs"',
            "run --proxy x.toml",
            "known are bpf, cgroup2, sysfs, tmpfs",
        ),
        (GOOD + COMMAND + b'features = ["nope"]', "run --proxy x.toml", "known are NodePort, externalIPs"),
        (GOOD + COMMAND + b"[without]\nz = []", "run --proxy x.toml", "[without] z: modes are m"),
        (
            GOOD + b'command = ["{binary}"]',
            "run --proxy x.toml",
            "give --binary PATH, or `binary` in the file",
        ),
        (GOOD + COMMAND, "run --proxy x.toml --mode n", "--mode n: x has m"),
        (GOOD + COMMAND, "run --proxy x.toml --testbed simulator", "cannot run x; use --testbed netns"),
        (b"", "run --case nope", "--case: no case matches nope; `kproxy conformance list` lists all cases"),
        (b"", "run --case readiness", "no case matches readiness; did you mean 'readiness.*'?"),
        (b"", "list --case nope", "no case matches nope"),
        (b"", "list --regression 1", "--regression 1: no reported bug has this name"),
        (b"", "show nope", "no case has the ID nope; `kproxy conformance list` lists all cases"),
        (b"", "run --xfails none", "--xfails none: No such file or directory"),
        (
            b"cluster-ip.*",
            "run --xfails x.toml",
            "x.toml:1: 'cluster-ip.*' is not of the form GLOB [MODE]  # REASON",
        ),
        (
            b"",
            "run --json /no/x.json",
            "--json /no/x.json: the folder /no does not exist; create it, or give a file in another folder",
        ),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(
    file: bytes,
    text: str,
    reported: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_bytes(file)
    assert main(["conformance", *text.split()]) == 2
    streams = capsys.readouterr()
    assert reported in streams.err
    assert streams.err.startswith("kproxy conformance: ")
    assert streams.err.count("\n") == 1
    assert streams.out == ""


@pytest.mark.parametrize("form", ["json", "junit", "html"])
def test_results_that_cannot_be_written_are_status_2(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("run", "--testbed", "simulator", "--mode", "nftables", "--case", "no-endpoints.cluster-ip-*")
    assert main(["conformance", *arguments, f"--{form}", "/dev/full"]) == 2
    streams = capsys.readouterr()
    assert streams.err == "kproxy conformance: /dev/full: No space left on device\n"
    assert "passed in" in streams.out, "the results were printed, at least"


def test_a_comparison_that_cannot_be_written_is_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = str(tmp_path / "results.json")
    arguments = ("run", "--testbed", "simulator", "--mode", "nftables", "--case", "no-endpoints.cluster-ip-*")
    main(["conformance", *arguments, "--json", results])
    assert main(["conformance", "report", results, "--markdown", "/dev/full"]) == 2
    assert "kproxy conformance report: /dev/full: No space left on device" in capsys.readouterr().err


def test_an_unforeseen_error_is_no_failed_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(_: object) -> int:
        raise LookupError("nobody knows")

    monkeypatch.setattr("kproxy.conformance.command.run_conformance", breaks)
    assert main(["conformance", "run"]) == 2
    reported = capsys.readouterr().err
    assert "LookupError: nobody knows" in reported
    assert reported.endswith("so nothing was judged; please report it\n")
