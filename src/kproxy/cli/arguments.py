"""Shared by the modules of commands: sub-commands of argparse, and the way from parsed options to a command's value."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from kproxy.cli.parser import Parser
from kproxy.options.arguments import add_option_groups
from kproxy.options.commands import GROUPS_OF_COMMANDS, PRINTED, help_of
from kproxy.options.option import OptionUser

if TYPE_CHECKING:
    from kproxy.tools.lab_session.options import ReplicaOptions

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
"""Sub-commands of a command, as argparse adds them."""

Command: TypeAlias = Callable[[argparse.Namespace], int]
"""Runs a command with its parsed options; returns the exit status."""

Value = TypeVar("Value")


def add_command(commands: Commands, user: OptionUser, command: Command) -> Parser:
    """Add a command as the tables of commands and of options have it."""
    row = help_of(user)
    parser = commands.add_parser(
        row.name.rpartition(" ")[2],
        help=row.about,
        description=row.description or f"{row.about[0].upper()}{row.about[1:]}.",
        epilog=row.epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_option_groups(parser, user)
    parser.set_defaults(command=command, only_prints=row.statuses is PRINTED)
    return parser


def add_commands(commands: Commands, name: str) -> Commands:
    """Add a command that has only further commands; returns where to add them."""
    about = GROUPS_OF_COMMANDS[name]
    parser = commands.add_parser(name.rpartition(" ")[2], help=about, description=about)
    return parser.add_subparsers(required=True, metavar="ACTION", title="actions")


def build_options(kind: Callable[..., Value], options: argparse.Namespace, **overrides: object) -> Value:
    """A dataclass from the parsed options of the same names; ``overrides``: fields with other values."""
    parsed = {
        field.name: tuple(argument)
        if isinstance(argument := getattr(options, field.name), list)
        else argument
        for field in fields(kind)  # type: ignore[arg-type]
        if field.name not in overrides and hasattr(options, field.name)
    }
    return kind(**parsed, **overrides)


def cluster_options(options: argparse.Namespace) -> ReplicaOptions:
    """The cluster to copy, and the configuration of its proxies."""
    from kproxy.tools.lab_session.options import ReplicaOptions

    return build_options(ReplicaOptions, options)
