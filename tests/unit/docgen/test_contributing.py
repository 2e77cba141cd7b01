"""CONTRIBUTING begins with commands, whose output is as shown except for line numbers, and its example of a case is correct."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from typing import Any

import pytest

import kproxy.conformance.case
from kproxy.cli import main
from kproxy.conformance.generate.oracle_answers import with_oracle_answers
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


def test_the_example_of_a_case_has_the_outcomes_and_clauses_of_the_oracle() -> None:
    example = re.search(r"```python\n(.+?)```", TEXT, re.DOTALL)
    assert example
    names: dict[str, Any] = dict(vars(kproxy.conformance.case))
    exec(example[1], names)  # noqa: S102 - the page's own example
    shown = names["LOCAL_STAYS_ON_NODE"]
    for family in shown.families:
        answered = with_oracle_answers(replace(shown, families=(family,)))
        assert answered.steps == shown.steps
        assert answered.clauses == shown.clauses
