"""``kproxy spec``: queries of the specification."""

from __future__ import annotations

import argparse

from kproxy.cli.arguments import Commands, add_command, add_commands, build_options
from kproxy.options.option import OptionUser


def add_spec_command(commands: Commands) -> None:
    """Add the command, its actions and their options."""
    actions = add_commands(commands, "spec")
    add_command(actions, OptionUser.SPEC_SHOW, _show)
    add_command(actions, OptionUser.EXPLAIN, _explain)


def _explain(options: argparse.Namespace) -> int:
    from kproxy.tools.explain import command

    return command.explain(build_options(command.ExplainOptions, options))


def _show(options: argparse.Namespace) -> int:
    from kproxy.tools.reference import command

    return command.show(build_options(command.ShowOptions, options))
