"""The command line itself: help, guesses at what was meant, forms and files of output, completion, the page of ``man``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kproxy import __version__
from kproxy.cli import build_parser, main
from kproxy.cli.parser import subparsers
from kproxy.options.commands import COMMANDS, GROUPS_OF_COMMANDS
from tests.support.paths import ROOT

CASE = "cluster-ip.slices-are-merged"


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    """Exit status, standard output and standard error of a command that argparse ends."""
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    streams = capsys.readouterr()
    return end.value.code, streams.out, streams.err


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("conformence run", "kproxy: unknown command conformence; did you mean conformance?"),
        ("conformance rn", "kproxy conformance: unknown command rn; did you mean run?"),
        ("explain", "kproxy: unknown command explain; did you mean `kproxy spec explain`?"),
        ("explan", "kproxy: unknown command explan; did you mean `kproxy spec explain`?"),
        ("show", "unknown command show; did you mean `kproxy conformance show` or `kproxy spec show`?"),
        ("verify", "unknown command verify; did you mean `kproxy conformance verify`?"),
        ("lab fetch", "did you mean `kproxy lab kernel fetch` or `kproxy lab cluster fetch`?"),
        ("xyzzy", "kproxy: unknown command xyzzy; known: run, conformance,"),
        ("conformance run --kernal host", "unknown argument --kernal; did you mean --kernel?"),
        ("conformance run --sync-timout=3", "unknown argument --sync-timout=3; did you mean --sync-timeout?"),
        ("conformance list --json -", "unknown argument --json; type -o json --output FILE"),
        ("conformance run --kernel hots", "argument --kernel: unknown value hots; did you mean host?"),
        ("lab kernel fetchh", "kproxy lab kernel: unknown command fetchh; did you mean fetch?"),
        ("completion fish", "unknown value fish; known: bash, zsh, tcsh"),
    ],
)
def test_a_misspelt_word_is_answered_with_what_was_meant(
    text: str, reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, printed, error = ended(capsys, *text.split())
    assert (status, printed) == (2, "")
    assert reported in error
    assert re.search(r"--help` lists the (commands|options)$", error)
    assert "usage:" not in error


def test_the_version_is_an_option_and_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(capsys, "--version") == (0, f"kproxy {__version__}\n", "")
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"kproxy {__version__}\n"
    assert main(["version", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": __version__}


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(capsys, "help", "conformance", "run") == ended(capsys, "conformance", "run", "--help")
    assert ended(capsys, "help") == ended(capsys, "--help")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_help_has_its_options_in_groups_examples_and_exit_statuses(
    command: object, capsys: pytest.CaptureFixture[str]
) -> None:
    status, printed, _ = ended(capsys, *command.name.split(), "--help")  # type: ignore[attr-defined]
    assert status == 0
    assert "exit status: 0 " in printed
    for line, _ in command.examples:  # type: ignore[attr-defined]
        assert f"  $ {line}\n" in printed
    assert "\npositional arguments:" not in printed


def test_every_command_is_in_the_table() -> None:
    found: list[str] = []

    def collect(parser: object, path: str) -> None:
        for name, below in subparsers(parser).items():  # type: ignore[arg-type]
            if name not in {"run", "kubectl", "help"} or path:
                found.append(f"{path} {name}".strip())
                collect(below, found[-1])

    collect(build_parser(), "")
    assert sorted(found) == sorted([*GROUPS_OF_COMMANDS, *(command.name for command in COMMANDS)])


def test_examples_can_be_parsed() -> None:
    """An example whose options or values the parser refuses would be worse than none."""
    lines = [line for command in COMMANDS for line, _ in command.examples if line.startswith("kproxy ")]
    assert len(lines) > 15
    for line in lines:
        split = subprocess.run(
            ["bash", "-c", f"printf '%s\\n' {line.partition(' >')[0]}"],
            capture_output=True,
            text=True,
            check=True,
        )
        arguments = split.stdout.splitlines()[1:]
        assert build_parser().parse_args(arguments).command, line


@pytest.mark.parametrize(
    "arguments",
    [
        ("conformance", "list", "--case", CASE),
        ("conformance", "show", CASE),
        ("spec", "show", "cluster-ip"),
        ("spec", "show"),
        (
            "spec",
            "explain",
            "-f",
            str(ROOT / "docs/examples/cluster.yaml"),
            "--from",
            "host/node-b",
            "--to",
            "svc/dns:53/udp",
        ),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_json_and_yaml_are_the_same_data_and_may_go_to_a_file(
    arguments: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "-o", "json"]) == 0
    as_json = json.loads(capfd.readouterr().out)
    file = tmp_path / "out.yaml"
    assert main([*arguments, "-o", "yaml", "--output", str(file)]) == 0
    assert capfd.readouterr().out == ""
    assert yaml.safe_load(file.read_text(encoding="utf-8")) == as_json
    assert main([*arguments]) == 0
    assert capfd.readouterr().out[0] not in "{["


def test_a_file_that_cannot_be_written_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "list", "--output", "/no/such/list"]) == 2
    assert capfd.readouterr().err == (
        "kproxy: --output /no/such/list: No such file or directory; give a file in a folder that exists\n"
    )
    assert main(["conformance", "list", "--output", "/dev/full"]) == 2
    assert "kproxy: --output /dev/full: No space left on device" in capfd.readouterr().err


# ------------------------------------------------------------------------------ shells and man


def completed(tmp_path: Path, *typed: str) -> list[str]:
    """What bash offers for a command line, by the script that the command prints."""
    script = tmp_path / "kproxy.bash"
    with script.open("w") as file:
        subprocess.run([sys.executable, "-m", "kproxy", "completion", "bash"], stdout=file, check=True)
    array = " ".join(f"'{word}'" for word in typed)
    program = f"""
source {script}
COMP_WORDS=({array}); COMP_CWORD={len(typed) - 1}; COMP_LINE="${{COMP_WORDS[*]}}"; COMP_POINT=${{#COMP_LINE}}
function=$(complete -p kproxy | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function kproxy '{typed[-1]}' '{typed[-2]}'
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("kproxy", "conf"), {"conformance"}),
        (("kproxy", "conformance", "ru"), {"run"}),
        (("kproxy", "conformance", "run", "--maxf"), {"--maxfail"}),
        (("kproxy", "conformance", "run", "--kernel", "u"), {"uml"}),
        (("kproxy", "run", "--proxy-m"), {"--proxy-mode"}),
        (("kproxy", "xyz"), set()),
    ],
)
def test_bash_offers_what_the_parser_has(typed: tuple[str, ...], offered: set[str], tmp_path: Path) -> None:
    assert set(completed(tmp_path, *typed)) == offered


def test_the_page_of_man_is_read_without_warnings() -> None:
    groff = shutil.which("groff")
    assert groff, "groff is missing: apt-get install groff-base"
    page = ROOT / "docs/man/kproxy.1"
    done = subprocess.run(
        [groff, "-man", "-Tascii", "-P-cbou", "-ww", str(page)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("kproxy conformance run", "--last-failed", "exit status", "--proxy-mode", "--cleanup"):
        assert text in done.stdout
