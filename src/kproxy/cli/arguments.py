"""Shared by the modules of commands: sub-commands of argparse, and the way from parsed options to a command's value."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from kproxy.options.arguments import add_options
from kproxy.options.option import Front

if TYPE_CHECKING:
    from kproxy.tools.lab_session.options import ReplicaOptions

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Sub-commands of a command, as argparse adds them."""

Command: TypeAlias = Callable[[argparse.Namespace], int]
"""Runs a command with its parsed options; returns the exit status."""

Value = TypeVar("Value")


def add_command(
    commands: Commands, name: str, front: Front, about: str, command: Command, description: str = ""
) -> argparse.ArgumentParser:
    """Add a sub-command with the options that the table has for it; ``about``: its line in the list of commands."""
    parser = commands.add_parser(name, help=about, description=description or None)
    add_options(parser.add_argument, front)
    parser.set_defaults(command=command)
    return parser


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
