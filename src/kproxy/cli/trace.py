"""``kproxy trace``: which rule handles a packet."""

from __future__ import annotations

import argparse

from kproxy.cli.arguments import Commands, add_command, build_options
from kproxy.options.option import Front

_DESCRIPTION = """\
Prints which rule handles a packet: its way through chains, maps and virtual servers, whichever program wrote them, and
the outcome. Without -f the rules of this node are read, as root; nothing is changed."""


def add_trace_command(commands: Commands) -> None:
    """Add the command and its options."""
    about = "which rule of this node, or of saved rules, handles a packet"
    add_command(commands, "trace", Front.TRACE, about, _trace, _DESCRIPTION)


def _trace(options: argparse.Namespace) -> int:
    from kproxy.tools.trace import command

    return command.run_trace(build_options(command.TraceOptions, options))
