"""Words of ``kproxy compare``: two proxies on your own Services."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kproxy.cli.words import Commands, seconds


def add(commands: Commands) -> None:
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
    add_cluster(compare)
    compare.add_argument(
        "--kernel",
        default="auto",
        choices=["auto", "host", "rootless", "uml"],
        help="what to run on (default: the first that can; see `kproxy lab doctor`)",
    )
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


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """What a replica of a cluster is made from."""
    parser.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        metavar="FILE",
        help="what `kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml` printed; - for standard input",
    )
    parser.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="NAME",
        help="a node that the lab is to run; two at most (default: those with the most endpoints)",
    )
    parser.add_argument(
        "--cluster-cidr", default="", metavar="RANGES", help="detectLocalMode ClusterCIDR with these"
    )
    parser.add_argument(
        "--node-port-addresses", default="", metavar="RANGES", help="as configured, or primary"
    )
    parser.add_argument("--masquerade-all", action="store_true", help="as configured")
    parser.add_argument(
        "--iptables",
        default="auto",
        choices=["auto", "nft", "legacy"],
        help="variant of iptables the proxies find (default: nft where the kernel has it)",
    )
    parser.add_argument(
        "--patience",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="how long a proxy may take to apply everything (default: 60, on an emulated kernel 240)",
    )


def _compare(options: argparse.Namespace) -> int:
    from kproxy.replica import command
    from kproxy.replica.options import Cluster

    return command.run(
        command.CompareOptions(
            one=options.a,
            other=options.b,
            binaries=(options.a_binary or options.binary, options.b_binary or options.binary),
            cluster=Cluster(
                files=tuple(options.file),
                nodes=tuple(options.node),
                cluster_cidr=options.cluster_cidr,
                node_port_addresses=options.node_port_addresses,
                masquerade_all=options.masquerade_all,
                iptables=options.iptables,
                patience=options.patience,
            ),
            kernel=options.kernel,
            json=options.json,
            export=options.export,
            words=tuple(sys.argv[1:]),
        )
    )
