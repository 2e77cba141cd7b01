"""CONTRIBUTING begins with commands; what it shows of their output is what they print, but for the numbers of lines."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest

from kproxy.cli import main
from tests.support.paths import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SAMPLES = [
    (command, shown.splitlines())
    for block in re.findall(r"```console\n(.+?)```", TEXT, re.DOTALL)
    for command, shown in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)+)", block, re.MULTILINE)
]


def output(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    tool, *arguments = shlex.split(command)
    if tool == "kproxy":
        main(arguments)
        printed = capsys.readouterr()
        return printed.out + printed.err
    return subprocess.run([tool, *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def without_numbers(lines: list[str]) -> list[str]:
    return [re.sub(r":\d+\b", "", line) for line in lines]


@pytest.mark.parametrize(("command", "shown"), SAMPLES, ids=[command for command, _ in SAMPLES])
def test_a_sample_is_what_the_command_prints(
    command: str, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = without_numbers(output(command, capsys).splitlines())
    lines = without_numbers([line for line in shown if line != "..."])
    assert [line for line in lines if line not in printed] == []


def test_there_are_samples() -> None:
    assert len(SAMPLES) == 6
    assert TEXT.index("```console") < TEXT.index("./run tests")
