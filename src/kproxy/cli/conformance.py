"""Words of ``kproxy conformance``: run, fuzz, list and show the catalogue; those of cluster and report are beside it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kproxy.cli import conformance_cluster, conformance_report
from kproxy.cli.arguments import (
    Commands,
    add_iptables_option,
    add_kernel_option,
    add_sync_timeout_option,
    build_options,
    positive_int,
)


def add_conformance_command(commands: Commands) -> None:
    """The words of every action."""
    conformance = commands.add_parser("conformance", help="judge a service proxy by real packets")
    actions = conformance.add_subparsers(required=True, metavar="ACTION")
    _add_run(actions.add_parser("run", help="run the catalogue"))
    _add_fuzz(actions)
    conformance_cluster.add_cluster_command(actions)
    conformance_report.add_report_command(actions)
    _add_list(actions.add_parser("list", help="list the catalogue"))
    _add_show(
        actions.add_parser("show", help="all about one case: what it does, asks and cites, and where it runs")
    )


def _add_run(run: argparse.ArgumentParser) -> None:
    _add_subject(run, default_mode="each, one run for each")
    _add_environment_options(run)
    _add_cases(run)
    run.add_argument(
        "--case-file",
        dest="case_files",
        action="append",
        default=[],
        metavar="FILE",
        help="a case that `kproxy compare` or `fuzz` wrote",
    )
    _add_output_options(run)
    run.add_argument(
        "--json", default="", metavar="FILE", help="write results as JSON; - for standard output"
    )
    conformance_report.add_output_options(run)
    run.add_argument("--evidence", type=Path, default=Path("evidence"), help="where failures leave evidence")
    run.add_argument(
        "--xfails",
        default="",
        metavar="FILE",
        help="cases that are expected to fail, one a line: GLOB [MODE]  # REASON; one that passes has failed",
    )
    run.add_argument(
        "--dryrun",
        action="store_true",
        help="run nothing; say which cases would be run where, and why not others",
    )
    run.add_argument(
        "--where-possible",
        action="store_true",
        help="without --mode: modes that no kernel here can run may be left out",
    )
    run.add_argument(
        "--lacking-packages",
        action="store_true",
        help="run nothing; print the Debian packages that give a kernel to a mode that finds none",
    )
    run.set_defaults(command=_run)


def _add_subject(run: argparse.ArgumentParser, default_mode: str) -> None:
    run.add_argument(
        "--proxy",
        default="kproxy",
        metavar="NAME|FILE.toml",
        help="kproxy, kube-proxy, kube-router or a subject file",
    )
    run.add_argument("--binary", default="", metavar="PATH", help="the subject's program")
    run.add_argument("--mode", default="", help=f"one of the subject's modes (default: {default_mode})")
    run.add_argument(
        "--testbed", default="netns", choices=["netns", "simulator"], help="default: %(default)s"
    )
    add_iptables_option(
        run,
        "variant of iptables the subject finds (default: both without --mode, else nft where the kernel has it)",
    )
    run.add_argument(
        "--apiserver",
        default="lab",
        choices=["lab", "kube"],
        help="whom the subject asks: the lab's own API server, or etcd and kube-apiserver of $KUBEBUILDER_ASSETS",
    )


def _add_output_options(run: argparse.ArgumentParser) -> None:
    run.add_argument("--slow", action="store_true", help="also cases that must wait for real time to pass")
    run.add_argument(
        "--shuffle", type=int, default=None, metavar="SEED", help="run the cases in another order"
    )
    run.add_argument(
        "--guests",
        type=positive_int,
        default=0,
        metavar="N",
        help="how many User-Mode Linuxes share the cases (default: as many as help)",
    )
    _add_timing_options(run)


def _add_timing_options(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--parallel", type=positive_int, default=2, metavar="N", help="labs at once (default: %(default)s)"
    )
    add_sync_timeout_option(run, "how long the subject may take to apply changes")


def _add_list(listing: argparse.ArgumentParser) -> None:
    _add_cases(listing)
    listing.add_argument(
        "--regression",
        action="append",
        default=[],
        metavar="NAME",
        help="only cases that hold a reported bug: its issue's number, or its id (repeatable)",
    )
    listing.add_argument("--json", default="", metavar="FILE", help="write it as JSON; - for standard output")
    listing.set_defaults(command=_list)


def _add_show(show: argparse.ArgumentParser) -> None:
    show.add_argument("case", metavar="ID", help="as `kproxy conformance list` has it")
    show.set_defaults(command=_show)


def _add_fuzz(actions: Commands) -> None:
    fuzz = actions.add_parser("fuzz", help="run generated worlds, and make small what fails")
    _add_subject(fuzz, default_mode="iptables")
    _add_environment_options(fuzz)
    _add_timing_options(fuzz)
    fuzz.add_argument(
        "--worlds", type=positive_int, default=200, metavar="N", help="how many (default: %(default)s)"
    )
    fuzz.add_argument("--seed", type=int, default=None, help="which ones (default: others each time)")
    fuzz.add_argument(
        "--world", action="append", type=int, default=[], metavar="N", help="only this one (repeatable)"
    )
    fuzz.add_argument(
        "--against", default="", metavar="NAME|FILE.toml", help="another subject: tell only what differs"
    )
    fuzz.add_argument("--against-binary", default="", metavar="PATH", help="its program")
    fuzz.add_argument("--against-mode", default="", metavar="MODE", help="its mode (default: the same)")
    fuzz.add_argument("--out", type=Path, default=Path("worlds"), help="where small failing worlds go")
    fuzz.add_argument("--no-shrink", action="store_true", help="keep failing worlds as large as they are")
    fuzz.set_defaults(command=_fuzz)


def _add_environment_options(parser: argparse.ArgumentParser) -> None:
    add_kernel_option(parser, ("host", "rootless", "uml", "vm"))
    parser.add_argument(
        "--time", default="real", choices=["real", "virtual"], help="virtual: idle time is skipped (uml)"
    )
    parser.add_argument(
        "--uml-kernel", default="", metavar="PATH", help="a User-Mode Linux kernel; beats $KPROXY_UML_KERNEL"
    )
    parser.add_argument(
        "--memory",
        type=positive_int,
        default=1024,
        metavar="MIB",
        help="a guest's memory (default: %(default)s)",
    )


def _add_cases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--case",
        dest="globs",
        action="append",
        default=[],
        metavar="GLOB",
        help="only these cases (repeatable)",
    )


def _run(options: argparse.Namespace) -> int:
    from kproxy.conformance import command
    from kproxy.conformance.options import RunOptions

    return command.run_conformance(build_options(RunOptions, options))


def _fuzz(options: argparse.Namespace) -> int:
    import secrets
    from dataclasses import replace

    from kproxy.conformance.generate import command
    from kproxy.conformance.options import RunOptions

    run = build_options(RunOptions, options, mode=options.mode or "iptables")
    mode = options.against_mode or run.mode
    other = replace(run, proxy=options.against or options.proxy, binary=options.against_binary, mode=mode)
    return command.run_fuzz(
        command.FuzzOptions(
            run=run,
            worlds=options.worlds,
            seed=secrets.randbelow(10**6) if options.seed is None else options.seed,
            only=tuple(options.world),
            other_run=other if options.against or options.against_mode else None,
            directory=options.out,
            shrink=not options.no_shrink,
            arguments=tuple(sys.argv[3:]),
        )
    )


def _list(options: argparse.Namespace) -> int:
    from kproxy.conformance import command

    return command.list_cases(tuple(options.globs), tuple(options.regression), json=options.json)


def _show(options: argparse.Namespace) -> int:
    from kproxy.conformance import command

    return command.print_case(options.case)
