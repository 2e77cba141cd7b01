"""``kproxy compare``: two proxies on the Services of a cluster."""

from __future__ import annotations

import argparse
import sys

from kproxy.cli.arguments import Commands, add_command, cluster_options
from kproxy.options.option import OptionUser
from kproxy.options.table import with_new_names


def add_compare_command(commands: Commands) -> None:
    """Add the command and its options."""
    add_command(commands, OptionUser.COMPARE, _compare)


def _compare(options: argparse.Namespace) -> int:
    from kproxy.tools.compare import command

    return command.run_compare(
        command.CompareOptions(
            one=options.a,
            other=options.b,
            binaries=(options.a_binary or options.binary, options.b_binary or options.binary),
            cluster=cluster_options(options),
            kernel=options.kernel,
            form=options.form,
            export=options.export,
            arguments=with_new_names(sys.argv[1:]),
        )
    )
