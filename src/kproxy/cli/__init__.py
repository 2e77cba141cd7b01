"""The command line: one small table of commands, a module for the words of each; the composition root.

It parses words into values, calls one function and turns the answer into an exit code.
Imports are made in the command that needs them, so that the daemon does not pay for the lab.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence

from kproxy import __version__
from kproxy.cli import compare, conformance, lab, spec, trace

_ABOUT = "A Kubernetes service proxy in readable Python, and a conformance harness for any service proxy."

CLOSED_PIPE = 128 + signal.SIGPIPE
"""The exit status where nobody reads the output any more: what a shell reports of `yes | head`'s first command."""

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code, 2 for what nobody has thought of."""
    tokens = sys.argv[1:] if arguments is None else arguments
    if tokens[:1] == ["run"]:
        return _run(tokens[1:])
    options = build_parser().parse_args(tokens)
    command: Command = options.command
    try:
        status = command(options)
        sys.stdout.flush()  # what cannot be written any more is known here, not when the interpreter ends
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except Exception:  # noqa: BLE001 (Python's own status is 1, which says that a case failed)
        traceback.print_exc()
        sys.stderr.write("kproxy: this is a mistake of kproxy's, or of this machine; nothing was judged\n")
        return 2
    return status


def build_parser() -> argparse.ArgumentParser:
    """All words of `kproxy` but those of the daemon."""
    root = argparse.ArgumentParser(prog="kproxy", description=_ABOUT)
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("run", help="be this node's service proxy (`kproxy run --help`)")
    conformance.add_conformance_command(commands)
    lab.add_lab_command(commands)
    spec.add_spec_command(commands)
    compare.add_compare_command(commands)
    trace.add_trace_command(commands)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(command=_version)
    return root


def _version(_: argparse.Namespace) -> int:
    print(f"kproxy {__version__}")
    return 0


def _run(arguments: Sequence[str]) -> int:
    """The daemon reads its words itself: they are kube-proxy's, not argparse's."""
    from kproxy.proxy.daemon import command

    return command.run_daemon_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
