"""Words of ``kproxy compare``: two proxies on your own Services."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kproxy.cli.arguments import Commands, add_cluster_options, add_kernel_option, cluster_options


def add_compare_command(commands: Commands) -> None:
    """The words."""
    compare = commands.add_parser("compare", help="what differs between two proxies, on your own Services")
    compare.add_argument(
        "--a", default="kube-proxy:iptables", metavar="NAME:MODE", help="one proxy (default: %(default)s)"
    )
    compare.add_argument(
        "--b", default="kube-proxy:nftables", metavar="NAME:MODE", help="the other (default: %(default)s)"
    )
    compare.add_argument("--binary", default="", metavar="PATH", help="the program of both")
    compare.add_argument("--a-binary", default="", metavar="PATH", help="the program of one")
    compare.add_argument("--b-binary", default="", metavar="PATH", help="the program of the other")
    add_cluster_options(compare)
    add_kernel_option(compare, ("host", "rootless", "uml"))
    compare.add_argument(
        "--json", default="", metavar="FILE", help="write it as JSON; - for standard output, and no text"
    )
    compare.add_argument(
        "--export",
        type=Path,
        default=None,
        metavar="DIR",
        help="write differences as cases, to be run by `kproxy conformance run --case-file`",
    )
    compare.set_defaults(command=_compare)


def _compare(options: argparse.Namespace) -> int:
    from kproxy.tools.compare import command

    return command.run_compare(
        command.CompareOptions(
            one=options.a,
            other=options.b,
            binaries=(options.a_binary or options.binary, options.b_binary or options.binary),
            cluster=cluster_options(options),
            kernel=options.kernel,
            json=options.json,
            export=options.export,
            arguments=tuple(sys.argv[1:]),
        )
    )
