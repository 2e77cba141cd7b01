"""Words of ``kproxy conformance cluster``: judge the service proxy of a cluster that runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from kproxy.cli import conformance_report
from kproxy.cli.arguments import Commands, build_options, positive_seconds


def add_cluster_command(actions: Commands) -> None:
    """The words of the action."""
    cluster = actions.add_parser(
        "cluster", help="judge the service proxy of a cluster that runs, by packets in its pods"
    )
    cluster.add_argument(
        "--proxy",
        default="kproxy",
        metavar="NAME|FILE.toml",
        help="whose features and known deviations count (default: %(default)s); it is not started",
    )
    cluster.add_argument("--mode", required=True, help="the mode it runs in")
    cluster.add_argument(
        "--agent-image",
        dest="image",
        required=True,
        metavar="IMAGE",
        help="kproxy's image, where nodes find it",
    )
    cluster.add_argument("--kubeconfig", default="", metavar="FILE", help="default: as kubectl's")
    cluster.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig (default: its own)")
    for name in ("client", "remote"):
        cluster.add_argument(
            f"--{name}",
            default="",
            metavar="URL",
            help=f"of an agent outside of the cluster, the lab's {name}",
        )
    cluster.add_argument(
        "--really", action="store_true", help="although the cluster looks like one that people depend on"
    )
    cluster.add_argument(
        "--case",
        dest="globs",
        action="append",
        default=[],
        metavar="GLOB",
        help="only these cases (repeatable)",
    )
    cluster.add_argument(
        "--slow", action="store_true", help="also cases that must wait for real time to pass"
    )
    cluster.add_argument(
        "--patience",
        type=positive_seconds,
        default=0.0,
        metavar="SECONDS",
        help="how long the proxies may take to apply changes (default: 60)",
    )
    cluster.add_argument(
        "--json", default="", metavar="FILE", help="write results as JSON; - for standard output"
    )
    conformance_report.add_output_options(cluster)
    cluster.add_argument(
        "--evidence", type=Path, default=Path("evidence"), help="where failures leave evidence"
    )
    cluster.add_argument("--xfails", default="", metavar="FILE", help="cases that are expected to fail")
    cluster.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from kproxy.conformance.options import RunOptions
    from kproxy.conformance.testbeds.cluster import command

    run = build_options(RunOptions, options, testbed="cluster")
    return command.run_in_cluster(build_options(command.ClusterOptions, options, run=run))
