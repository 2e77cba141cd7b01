"""What several commands share in reading words, and the way from words to a command's value."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from kproxy.tools.lab_session.options import ReplicaOptions

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What takes a command's sub-commands."""

Value = TypeVar("Value")


def build_options(kind: Callable[..., Value], options: argparse.Namespace, **overrides: object) -> Value:
    """A dataclass whose fields are the words that were said; ``overrides``: fields that no word is called by."""
    parsed = {
        field.name: tuple(argument)
        if isinstance(argument := getattr(options, field.name), list)
        else argument
        for field in fields(kind)  # type: ignore[arg-type]
        if field.name not in overrides and hasattr(options, field.name)
    }
    return kind(**parsed, **overrides)


def cluster_options(options: argparse.Namespace) -> ReplicaOptions:
    """What `add_cluster_options` asked for."""
    from kproxy.tools.lab_session.options import ReplicaOptions

    return build_options(ReplicaOptions, options)


def positive_int(text: str) -> int:
    """A whole number, at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return number


def positive_seconds(text: str) -> float:
    """A time in seconds, more than none."""
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("more than 0 is needed")
    return seconds


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """What a replica of a cluster is made from: the fields of `kproxy.tools.lab_session.options.ReplicaOptions`."""
    add_dump_option(parser)
    parser.add_argument(
        "--node",
        dest="nodes",
        action="append",
        default=[],
        metavar="NAME",
        help="a node that the lab is to run; two at most (default: those with the most endpoints)",
    )
    add_proxy_configuration_options(parser)
    add_iptables_option(parser, "variant of iptables the proxies find (default: nft where the kernel has it)")
    add_sync_timeout_option(parser, "how long a proxy may take to apply everything")


def add_dump_option(parser: argparse.ArgumentParser) -> None:
    """The objects of a cluster."""
    parser.add_argument(
        "-f",
        "--file",
        dest="files",
        action="append",
        required=True,
        metavar="FILE",
        help="what `kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml` printed; - for standard input",
    )


def add_proxy_configuration_options(parser: argparse.ArgumentParser) -> None:
    """How the proxies of a cluster are configured."""
    parser.add_argument(
        "--cluster-cidr", default="", metavar="RANGES", help="detectLocalMode ClusterCIDR with these"
    )
    parser.add_argument(
        "--node-port-addresses", default="", metavar="RANGES", help="as configured, or primary"
    )
    parser.add_argument("--masquerade-all", action="store_true", help="as configured")


def add_node_address_option(parser: argparse.ArgumentParser) -> None:
    """What a dump does not tell of a node."""
    parser.add_argument(
        "--node-address",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="another one of the node's own (repeatable)",
    )


def add_kernel_option(parser: argparse.ArgumentParser, kernels: Sequence[str]) -> None:
    """What a lab runs on."""
    parser.add_argument(
        "--kernel",
        default="auto",
        choices=["auto", *kernels],
        help="what to run on (default: the first that can; see `kproxy lab doctor`)",
    )


def add_iptables_option(parser: argparse.ArgumentParser, text: str) -> None:
    """The variant of iptables."""
    parser.add_argument("--iptables", default="auto", choices=["auto", "nft", "legacy"], help=text)


def add_sync_timeout_option(parser: argparse.ArgumentParser, text: str) -> None:
    """How long a lab waits for a proxy."""
    parser.add_argument(
        "--patience",
        type=positive_seconds,
        default=0.0,
        metavar="SECONDS",
        help=f"{text} (default: 60, on an emulated kernel 240)",
    )
