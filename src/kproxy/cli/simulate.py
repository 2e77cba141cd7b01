"""``kproxy simulate``: universes from seeds."""

from __future__ import annotations

import argparse

from kproxy.cli.arguments import Commands, add_command, build_options
from kproxy.options.option import Front

_DESCRIPTION = """\
Simulates two nodes with their proxies, an API server and clients from a seed: changes, faults and packets, all of which a
seed repeats to the nanosecond. Each packet is judged by the specification. Needs a kernel of `kproxy lab kernel build`.
Exit status: 0 all was lawful, 1 something was not, 2 it could not be simulated."""


def add_simulate_command(commands: Commands) -> None:
    """Add the command and its options."""
    about = "whole universes from seeds: changes, faults and packets that repeat themselves"
    add_command(commands, "simulate", Front.SIMULATE, about, _simulate, _DESCRIPTION)


def _simulate(options: argparse.Namespace) -> int:
    from kproxy.universes import command

    chosen = build_options(
        command.SimulateOptions,
        options,
        seeds=options.shard.part(options.seeds),
        shrink=not options.no_shrink,
    )
    return command.run_simulate(chosen)
