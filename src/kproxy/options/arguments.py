"""Rows of the table of options as arguments of argparse, or of pytest, whose ``addoption`` takes the same."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from kproxy.options.option import CommandOption, OptionUser
from kproxy.options.table import option_groups_of, options_of


def add_options(add: Callable[..., object], user: OptionUser) -> None:
    """Add the options that a user takes; ``add``: ``addoption`` of a pytest group, or `argparse.ArgumentParser.add_argument`."""
    for option in options_of(user):
        _add_option(add, option)


def add_option_groups(parser: argparse.ArgumentParser, user: OptionUser) -> None:
    """Add a command's options, in groups with headings."""
    for title, options in option_groups_of(user):
        group = parser.add_argument_group(title)
        for option in options:
            _add_option(group.add_argument, option)


def _add_option(add: Callable[..., object], option: CommandOption) -> None:
    add(*_names(option), **_keywords(option))
    if option.old_name:
        add(option.old_name, **_keywords_of_old_name(option))


def _names(option: CommandOption) -> Sequence[str]:
    if option.is_positional:
        return (option.destination,)
    return (option.short, option.name) if option.short else (option.name,)


def _keywords(option: CommandOption) -> dict[str, Any]:
    keywords: dict[str, Any] = {"help": option.plain.replace("%", "%%")}
    if option.is_positional:
        keywords |= {"nargs": option.nargs} if option.nargs else {}
        keywords |= {"choices": option.choices} if option.choices else {}
        return keywords | {"metavar": option.metavar} | ({"default": ""} if option.nargs == "?" else {})
    keywords |= {"dest": option.destination, "default": [] if option.repeatable else option.default}
    if option.required:
        keywords["required"] = True
    if option.is_switch:
        return keywords | {"action": "store_true"}
    if option.repeatable:
        keywords["action"] = "append"
    return keywords | {"type": option.type} | _value_form(option)


def _value_form(option: CommandOption) -> dict[str, Any]:
    return {"choices": option.choices} if option.choices else {"metavar": option.metavar}


def _keywords_of_old_name(option: CommandOption) -> dict[str, Any]:
    keywords = _keywords(option) | {"help": argparse.SUPPRESS, "action": OldName, "const": option.name}
    return keywords | ({"nargs": 0} if option.is_switch else {})


class OldName(argparse.Action):
    """The former name of an option that is not repeatable: a notice, then what the option does; ``const``: its name."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 (argparse calls it so)
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Print the notice and store the value, True for an option without one."""
        sys.stderr.write(
            f"kproxy: {option_string} is now called {self.const}; the old name is accepted in this release only\n"
        )
        setattr(namespace, self.dest, True if self.nargs == 0 else values)
