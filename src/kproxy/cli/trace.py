"""``kproxy trace``: which rule handles a packet."""

from __future__ import annotations

import argparse

from kproxy.cli.arguments import Commands, add_command, build_options
from kproxy.options.option import OptionUser


def add_trace_command(commands: Commands) -> None:
    """Add the command and its options."""
    add_command(commands, OptionUser.TRACE, _trace)


def _trace(options: argparse.Namespace) -> int:
    from kproxy.tools.trace import command

    return command.run_trace(build_options(command.TraceOptions, options))
