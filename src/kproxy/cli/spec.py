"""Arguments of ``kproxy spec``: query the specification."""

from __future__ import annotations

import argparse

from kproxy.cli.arguments import (
    Commands,
    add_dump_option,
    add_node_address_option,
    add_proxy_configuration_options,
    build_options,
)


def add_spec_command(commands: Commands) -> None:
    """The arguments of every action."""
    spec = commands.add_parser("spec", help="query the specification")
    actions = spec.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="what is known of a clause, case, behaviour, regression or topic")
    show.add_argument("id", nargs="?", default="", metavar="ID", help="(default: list the topics)")
    show.add_argument("--json", action="store_true", help="every item, as JSON")
    show.set_defaults(command=_show)
    explain = actions.add_parser("explain", help="what is lawful for one packet in your cluster, and why")
    add_dump_option(explain)
    explain.add_argument(
        "--from", required=True, dest="sender", metavar="WHO", help="pod/NAME, host, client or an address"
    )
    explain.add_argument(
        "--to",
        required=True,
        dest="target",
        metavar="WHAT",
        help="svc/NAME:PORT, node/NAME:PORT or ADDRESS:PORT",
    )
    explain.add_argument(
        "--node", default="", metavar="NAME", help="the node it comes to (default: the sender's)"
    )
    explain.add_argument(
        "-o", "--output", default="text", choices=["text", "json"], help="default: %(default)s"
    )
    explain.add_argument(
        "--mode",
        default="",
        choices=["iptables", "ipvs", "nftables"],
        help="take this mode's defaults (default: any mode's)",
    )
    add_proxy_configuration_options(explain)
    add_node_address_option(explain)
    explain.set_defaults(command=_explain)


def _explain(options: argparse.Namespace) -> int:
    from kproxy.tools.explain import command

    return command.explain(build_options(command.ExplainOptions, options))


def _show(options: argparse.Namespace) -> int:
    from kproxy.tools.reference import command

    return command.show(build_options(command.ShowOptions, options))
