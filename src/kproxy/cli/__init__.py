"""The command line, the composition root: it parses arguments into values and calls one function for each command.

A module for each command; their options are rows of `kproxy.options.table`.
Imports are made in the command that needs them, so that the daemon loads neither the lab nor the other commands.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from kproxy import __version__
from kproxy.cli.output import CLOSED_PIPE, OutputFileError, redirected_output, run_until_closed

if TYPE_CHECKING:
    import argparse

    from kproxy.cli.arguments import Command
    from kproxy.cli.parser import Parser

_ABOUT = "A Kubernetes service proxy in readable Python, and a conformance harness for any service proxy."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status, 2 after an unexpected exception."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    if tokens[:1] == ["help"]:
        tokens = [*tokens[1:], "--help"]
    if tokens[:1] == ["run"]:
        return run_until_closed(partial(_run, tokens[1:]), 0)
    if tokens[:1] == ["kubectl"]:
        from kproxy.cli import kubectl

        return kubectl.run_plugin(tokens[1:])
    return run_until_closed(partial(_parse_and_execute, tokens), 0)


def _parse_and_execute(tokens: Sequence[str]) -> int:
    options = build_parser().parse_args(tokens)
    try:
        return run_until_closed(partial(_execute, options), 0 if options.only_prints else CLOSED_PIPE)
    except KeyboardInterrupt:
        return 130
    except Exception:  # noqa: BLE001 (Python's own status is 1, which says that a case failed)
        traceback.print_exc()
        sys.stderr.write(
            "kproxy: internal error (above): a defect of kproxy or of this machine, so nothing was judged; please report it\n"
        )
        return 2


def _execute(options: argparse.Namespace) -> int:
    command: Command = options.command
    try:
        with redirected_output(options):
            return command(options)
    except OutputFileError as reason:
        sys.stderr.write(f"kproxy: {reason}\n")
        return 2


def build_parser() -> Parser:
    """The parser of all commands; the daemon's options are not in it."""
    from kproxy.cli import compare, completion, conformance, lab, simulate, spec, trace
    from kproxy.cli.arguments import add_command
    from kproxy.cli.parser import Parser
    from kproxy.options.option import OptionUser

    root = Parser(prog="kproxy", description=_ABOUT, epilog="`kproxy help COMMAND` describes each.")
    root.add_argument("--version", action="version", version=f"kproxy {__version__}")
    commands = root.add_subparsers(required=True, metavar="COMMAND", title="commands")
    commands.add_parser("run", help="run the service proxy of this node (`kproxy run --help`)")
    conformance.add_conformance_command(commands)
    lab.add_lab_command(commands)
    spec.add_spec_command(commands)
    compare.add_compare_command(commands)
    trace.add_trace_command(commands)
    simulate.add_simulate_command(commands)
    completion.add_completion_command(commands)
    add_command(commands, OptionUser.VERSION, _version)
    commands.add_parser(
        "kubectl",
        help="explain, compare, trace and lab on the cluster of kubectl's context: `kubectl kproxy`",
    )
    commands.add_parser("help", help="help on a command: `kproxy help conformance run`")
    return root


def _version(options: argparse.Namespace) -> int:
    from kproxy.documents import TEXT, print_document

    if options.form == TEXT:
        print(f"kproxy {__version__}")
    else:
        print_document({"version": __version__}, options.form)
    return 0


def _run(arguments: Sequence[str]) -> int:
    """Run the daemon, which parses its flags itself: their form is kube-proxy's, not argparse's."""
    from kproxy.proxy.daemon import command

    return command.run_daemon_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
