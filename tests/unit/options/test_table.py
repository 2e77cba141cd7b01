"""The table of options: complete, without contradiction, and the same as in the Action and the documentation."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest
import yaml

from kproxy.conformance.options import RunOptions
from kproxy.conformance.testbeds.cluster.command import ClusterOptions
from kproxy.options.option import CommandOption, OptionUser, positive_int, positive_seconds
from kproxy.options.table import NEW_NAMES, OPTIONS, options_of, with_new_names
from tests.support.paths import ROOT

SHORTHANDS = {"form", "output", "exit_first"}
"""Options that the command line turns into other fields: `-o json --output FILE` into `--json FILE`."""

LEFT_OPEN = {"mode", "kernel"}
"""Options of `run` whose default on the command line leaves the choice to the run."""


@pytest.mark.parametrize("user", OptionUser)
def test_a_command_has_one_row_for_each_option(user: OptionUser) -> None:
    names = Counter(name for o in options_of(user) for name in (o.name, o.short, o.old_name) if name)
    assert [name for name, number in names.items() if number > 1] == []


@pytest.mark.parametrize("user", OptionUser)
def test_every_command_with_options_is_in_the_table(user: OptionUser) -> None:
    assert options_of(user)


def test_the_options_of_run_are_the_fields_of_its_value_with_the_same_defaults() -> None:
    table = {o.destination: () if o.repeatable else o.default for o in options_of(OptionUser.RUN)}
    values = {field.name: field.default for field in fields(RunOptions)}
    assert table.keys() - SHORTHANDS == values.keys()
    assert {name for name in table.keys() - SHORTHANDS if table[name] != values[name]} == LEFT_OPEN


@pytest.mark.parametrize("user", [OptionUser.CLUSTER, OptionUser.PYTEST])
def test_options_of_other_users_are_fields_of_a_run_or_of_a_cluster(user: OptionUser) -> None:
    known = {field.name for kind in (RunOptions, ClusterOptions) for field in fields(kind)}
    assert {o.destination for o in options_of(user)} - SHORTHANDS <= known


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.name} {option.users}")
def test_a_row_is_whole(option: CommandOption) -> None:
    assert option.help
    assert option.help[-1] != "."
    assert "\n" not in option.help
    takes_value = not option.is_switch and option.users != OptionUser.ACTION
    assert bool(option.metavar or option.choices) == takes_value
    assert not option.choices or option.default in ("", *option.choices)
    assert not (option.old_name and option.repeatable), "an old name stores one value"


def test_a_meaning_is_shown_with_its_default_and_without_targets_of_links() -> None:
    option = CommandOption(
        name="--x", users=OptionUser.RUN, metavar="N", default=2, repeatable=True, help="so [many](a.md#b)"
    )
    assert option.plain == "so many (default: 2; repeatable)"
    assert option.markdown == "so [many](a.md#b) (default: `2`; repeatable)"
    assert option.action_description == "so many (docs/a.md#b)"


def test_arguments_for_another_process_have_todays_names() -> None:
    given = ("--patience", "3", "--patience=4", "--case", "a", "--dry-run")
    assert with_new_names(given) == ("--sync-timeout", "3", "--sync-timeout=4", "--case", "a", "--dry-run")
    assert set(NEW_NAMES.values()).isdisjoint(NEW_NAMES)


# ------------------------------------------------------------------------------ the Action


def test_inputs_of_the_action_are_those_of_the_table() -> None:
    inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    assert inputs == {
        option.name.lstrip("-"): {"description": option.action_description}
        | ({"required": True} if option.required else {"default": option.default})
        for option in options_of(OptionUser.ACTION)
    }


def test_the_reusable_workflow_describes_inputs_as_the_action_does() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/judge.yml").read_text(encoding="utf-8"))
    inputs = workflow[True]["workflow_call"]["inputs"]  # YAML 1.1 reads `on` as true
    shared = {o.name.lstrip("-"): o.action_description for o in options_of(OptionUser.ACTION)} | {
        "results": ""
    }
    assert {name: inputs[name]["description"] for name in inputs.keys() & shared} == {
        name: text for name, text in shared.items() if name != "results"
    }


# ------------------------------------------------------------------------------ types


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5"])
def test_a_number_is_whole_and_positive(text: str) -> None:
    with pytest.raises(Exception, match="1 or more"):
        positive_int(text)


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan", "inf"])
def test_a_time_is_finite_and_positive(text: str) -> None:
    with pytest.raises(Exception, match="more than 0"):
        positive_seconds(text)
