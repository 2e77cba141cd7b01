"""The command line, the composition root: it parses arguments into values and calls one function for each command.

A module for each command; their options are rows of `kproxy.options.table`.
Imports are made in the command that needs them, so that the daemon does not load the lab.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Sequence

from kproxy import __version__
from kproxy.cli import compare, conformance, lab, simulate, spec, trace
from kproxy.cli.arguments import Command

_ABOUT = "A Kubernetes service proxy in readable Python, and a conformance harness for any service proxy."

CLOSED_PIPE = 128 + signal.SIGPIPE
"""Exit status after the reader of the output has closed it, as a shell reports it of `yes` in `yes | head`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status, 2 after an unexpected exception."""
    tokens = sys.argv[1:] if arguments is None else arguments
    if tokens[:1] == ["run"]:
        return _run(tokens[1:])
    options = build_parser().parse_args(tokens)
    command: Command = options.command
    try:
        status = command(options)
        sys.stdout.flush()  # a closed pipe is reported here, not when the interpreter ends
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except Exception:  # noqa: BLE001 (Python's own status is 1, which says that a case failed)
        traceback.print_exc()
        sys.stderr.write(
            "kproxy: internal error (above): a defect of kproxy or of this machine, so nothing was judged; please report it\n"
        )
        return 2
    return status


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; the daemon's options are not in it."""
    root = argparse.ArgumentParser(prog="kproxy", description=_ABOUT)
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("run", help="be this node's service proxy (`kproxy run --help`)")
    conformance.add_conformance_command(commands)
    lab.add_lab_command(commands)
    spec.add_spec_command(commands)
    compare.add_compare_command(commands)
    trace.add_trace_command(commands)
    simulate.add_simulate_command(commands)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(command=_version)
    return root


def _version(_: argparse.Namespace) -> int:
    print(f"kproxy {__version__}")
    return 0


def _run(arguments: Sequence[str]) -> int:
    """Run the daemon, which parses its flags itself: their form is kube-proxy's, not argparse's."""
    from kproxy.proxy.daemon import command

    return command.run_daemon_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
