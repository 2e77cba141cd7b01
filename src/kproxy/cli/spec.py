"""``kproxy spec``: queries of the specification."""

from __future__ import annotations

import argparse

from kproxy.cli.arguments import Commands, add_command, build_options
from kproxy.options.option import Front


def add_spec_command(commands: Commands) -> None:
    """Add the command, its actions and their options."""
    spec = commands.add_parser("spec", help="query the specification")
    actions = spec.add_subparsers(required=True, metavar="ACTION")
    about = "what is known of a clause, case, behaviour, regression or topic"
    add_command(actions, "show", Front.SPEC_SHOW, about, _show)
    about = "what is lawful for one packet in your cluster, and why"
    add_command(actions, "explain", Front.EXPLAIN, about, _explain)


def _explain(options: argparse.Namespace) -> int:
    from kproxy.tools.explain import command

    return command.explain(build_options(command.ExplainOptions, options))


def _show(options: argparse.Namespace) -> int:
    from kproxy.tools.reference import command

    return command.show(build_options(command.ShowOptions, options))
