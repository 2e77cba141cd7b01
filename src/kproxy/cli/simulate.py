"""``kproxy simulate``: universes from seeds."""

from __future__ import annotations

import argparse

from kproxy.cli.arguments import Commands, add_command, build_options
from kproxy.options.option import OptionUser


def add_simulate_command(commands: Commands) -> None:
    """Add the command and its options."""
    add_command(commands, OptionUser.SIMULATE, _simulate)


def _simulate(options: argparse.Namespace) -> int:
    from kproxy.universes.command import run_simulate
    from kproxy.universes.simulate_options import SimulateOptions

    chosen = build_options(
        SimulateOptions,
        options,
        seeds=options.shard.part(options.seeds),
        shrink=not options.no_shrink,
    )
    return run_simulate(chosen)
