"""Words of ``kproxy trace``: which rule handles a packet."""

from __future__ import annotations

import argparse

from kproxy.cli.arguments import Commands, add_node_address_option, build_options


def add_trace_command(commands: Commands) -> None:
    """The words of the command."""
    trace = commands.add_parser(
        "trace",
        help="which rule of this node, or of saved rules, handles a packet",
        description="Which rule handles a packet: its way through chains, maps and virtual servers, whoever wrote them, "
        "and what becomes of it. Without -f this node's own rules are read, as root; nothing is changed.",
    )
    trace.add_argument(
        "--from",
        required=True,
        dest="sender",
        metavar="WHO",
        help="an address, host, or pod/NAME (-f of objects)",
    )
    trace.add_argument(
        "--to",
        required=True,
        dest="target",
        metavar="WHAT",
        help="ADDRESS:PORT[/udp|/sctp], or svc/NAME:PORT (-f of objects)",
    )
    trace.add_argument(
        "-f",
        "--file",
        dest="files",
        action="append",
        default=[],
        metavar="FILE",
        help="saved rules, addresses, routes or objects, told by what is in it; - for standard input; repeatable",
    )
    trace.add_argument(
        "--via",
        default="",
        metavar="IFACE",
        help="the interface it comes in by (default: the route to the sender)",
    )
    add_node_address_option(trace)
    trace.add_argument(
        "-o",
        "--output",
        default="text",
        choices=["text", "short", "json"],
        help="short: without the rules as their tool writes them (default: %(default)s)",
    )
    trace.set_defaults(command=_trace)


def _trace(options: argparse.Namespace) -> int:
    from kproxy.tools.trace import command

    return command.run_trace(build_options(command.TraceOptions, options))
