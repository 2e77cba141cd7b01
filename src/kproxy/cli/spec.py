"""Words of ``kproxy spec``: ask the specification."""

from __future__ import annotations

import argparse

from kproxy.cli.words import Commands


def add(commands: Commands) -> None:
    """The words of every action."""
    spec = commands.add_parser("spec", help="ask the specification")
    actions = spec.add_subparsers(required=True, metavar="ACTION")
    explain = actions.add_parser("explain", help="what is lawful for one packet in your cluster, and why")
    explain.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        metavar="FILE",
        help="what kubectl printed; - for standard input",
    )
    explain.add_argument(
        "--from", required=True, dest="sender", metavar="WHO", help="pod/NAME, host, client or an address"
    )
    explain.add_argument(
        "--to", required=True, metavar="WHAT", help="svc/NAME:PORT, node/NAME:PORT or ADDRESS:PORT"
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
    explain.add_argument(
        "--cluster-cidr", default="", metavar="RANGES", help="detectLocalMode ClusterCIDR with these"
    )
    explain.add_argument(
        "--node-port-addresses", default="", metavar="RANGES", help="as configured, or primary"
    )
    explain.add_argument(
        "--node-address", action="append", default=[], metavar="ADDRESS", help="another one of the node's own"
    )
    explain.add_argument("--masquerade-all", action="store_true", help="as configured")
    explain.set_defaults(command=_explain)


def _explain(options: argparse.Namespace) -> int:
    from kproxy.explain import command

    return command.explain(
        command.Question(
            files=options.file,
            sender=options.sender,
            target=options.to,
            node=options.node,
            output=options.output,
            mode=options.mode,
            cluster_cidr=options.cluster_cidr,
            node_port_addresses=options.node_port_addresses,
            node_address=options.node_address,
            masquerade_all=options.masquerade_all,
        )
    )
