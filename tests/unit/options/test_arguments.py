"""Options as argparse and pytest take them; former names still work, with a notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.cli import build_parser
from kproxy.options.option import CommandOption, OptionUser
from kproxy.options.table import OPTIONS, options_of

COMMANDS = {
    OptionUser.RUN: "conformance run",
    OptionUser.FUZZ: "conformance fuzz",
    OptionUser.CLUSTER: "conformance cluster --mode m --agent-image i",
    OptionUser.REPORT: "conformance report",
    OptionUser.LIST: "conformance list",
    OptionUser.SHOW: "conformance show",
    OptionUser.COMPARE: "compare -f x",
    OptionUser.LAB_DOCTOR: "lab doctor",
    OptionUser.LAB_KERNEL_BUILD: "lab kernel build",
    OptionUser.LAB_KERNEL_FETCH: "lab kernel fetch",
    OptionUser.LAB_UP: "lab up -f x",
    OptionUser.LAB_EXEC: "lab exec",
    OptionUser.LAB_KUBECTL: "lab kubectl",
    OptionUser.LAB_DOWN: "lab down",
    OptionUser.SPEC_SHOW: "spec show",
    OptionUser.EXPLAIN: "spec explain",
    OptionUser.TRACE: "trace",
}
RENAMED = [
    (user, option) for option in OPTIONS if option.old_name for user in COMMANDS if user in option.users
]
PROMISED = {
    "--patience": "--sync-timeout",
    "--really": "--allow-production",
    "--lacking-packages": "--print-missing-packages",
    "--where-possible": "--skip-missing-kernels",
    "--dryrun": "--dry-run",
}


def test_all_renamed_options_are_known_by_their_old_names() -> None:
    assert {option.old_name: option.name for _, option in RENAMED} == PROMISED


@pytest.mark.parametrize(
    ("user", "option"), RENAMED, ids=[f"{COMMANDS[user]} {option.old_name}" for user, option in RENAMED]
)
def test_an_old_name_does_the_same_and_reports_the_new_one(
    user: OptionUser, option: CommandOption, capsys: pytest.CaptureFixture[str]
) -> None:
    value = [] if option.is_switch else ["3"]
    new = build_parser().parse_args([*COMMANDS[user].split(), option.name, *value])
    assert capsys.readouterr().err == ""
    old = build_parser().parse_args([*COMMANDS[user].split(), option.old_name, *value])
    assert vars(old) | {"error": None} == vars(new) | {"error": None}
    assert getattr(new, option.destination) in {True, 3.0}
    assert capsys.readouterr().err == (
        f"kproxy: {option.old_name} is now called {option.name}; the old name is accepted in this release only\n"
    )


@pytest.mark.parametrize("user", COMMANDS, ids=COMMANDS.values())
def test_help_shows_every_option_and_no_old_name(
    user: OptionUser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args([*COMMANDS[user].split(), "--help"])
    shown = capsys.readouterr().out
    for option in options_of(user):
        assert (option.metavar if option.is_positional else f"{option.name}") in shown
        assert not option.old_name or f"{option.old_name} " not in shown


def test_pytest_takes_the_old_name_too(tmp_path: Path) -> None:
    arguments = ("--pyargs", "kproxy.conformance", "--collect-only", "-q", "-k", "slices-are-merged")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, "--patience", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kproxy: --patience is now called --sync-timeout" in done.stderr
