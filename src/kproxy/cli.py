"""The command line: one small table of commands; the composition root.

It parses words into values, calls one function and turns the answer into an exit code.
Imports are made in the command that needs them, so that the daemon does not pay for the lab.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kproxy import __version__

Command = Callable[[argparse.Namespace], int]

LAWFUL, UNLAWFUL, CANNOT_RUN = 0, 1, 2
"""Exit codes of ``kproxy conformance run``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["run"]:
        return _run(words[1:])
    options = _parser().parse_args(words)
    command: Command = options.command
    try:
        return command(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kproxy", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("run", help="be this node's service proxy (`kproxy run --help`)")
    _add_conformance(commands)
    _add_lab(commands)
    _add_spec(commands)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(command=_version)
    return parser


def _add_conformance(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    conformance = commands.add_parser("conformance", help="judge a service proxy by real packets")
    actions = conformance.add_subparsers(required=True, metavar="ACTION")
    _add_run(actions.add_parser("run", help="run the catalogue"))
    _add_fuzz(actions)
    _add_list(actions.add_parser("list", help="list the catalogue"))


def _add_run(run: argparse.ArgumentParser) -> None:
    _add_subject(run)
    _add_kernel(run)
    _add_cases(run)
    _add_manner(run)
    run.add_argument(
        "--json", default="", metavar="FILE", help="write results as JSON; - for standard output"
    )
    run.add_argument("--evidence", type=Path, default=Path("evidence"), help="where failures leave evidence")
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
    run.set_defaults(command=_conformance_run)


def _add_subject(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--proxy", default="kproxy", metavar="NAME|FILE.toml", help="kproxy, kube-proxy or a subject file"
    )
    run.add_argument("--binary", default="", metavar="PATH", help="the subject's program")
    run.add_argument(
        "--mode", default="", help="one of the subject's modes (default: each, one run for each)"
    )
    run.add_argument(
        "--testbed", default="netns", choices=["netns", "simulator"], help="default: %(default)s"
    )
    run.add_argument(
        "--iptables",
        default="auto",
        choices=["auto", "nft", "legacy"],
        help="variant of iptables the subject finds (default: both without --mode, else nft where the kernel has it)",
    )
    run.add_argument(
        "--apiserver",
        default="lab",
        choices=["lab", "kube"],
        help="whom the subject asks: the lab's own API server, or etcd and kube-apiserver of $KUBEBUILDER_ASSETS",
    )


def _add_manner(run: argparse.ArgumentParser) -> None:
    run.add_argument("--slow", action="store_true", help="also cases that must wait for real time to pass")
    run.add_argument(
        "--shuffle", type=int, default=None, metavar="SEED", help="run the cases in another order"
    )
    _add_pace(run)


def _add_pace(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--parallel", type=_count, default=2, metavar="N", help="labs at once (default: %(default)s)"
    )
    run.add_argument(
        "--patience",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="how long the subject may take to apply changes (default: 60, on an emulated kernel 240)",
    )


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
    listing.set_defaults(command=_conformance_list)


def _add_fuzz(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    fuzz = actions.add_parser("fuzz", help="run generated worlds, and make small what fails")
    _add_subject(fuzz)
    _add_kernel(fuzz)
    _add_pace(fuzz)
    fuzz.add_argument(
        "--worlds", type=_count, default=200, metavar="N", help="how many (default: %(default)s)"
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
    fuzz.set_defaults(command=_conformance_fuzz)


def _add_lab(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    lab = commands.add_parser("lab", help="what the lab can run on, and how to have more")
    actions = lab.add_subparsers(required=True, metavar="ACTION")
    doctor = actions.add_parser("doctor", help="what each kernel can do here, and what to do about the rest")
    doctor.add_argument(
        "--uml-kernel", default="", metavar="PATH", help="a User-Mode Linux kernel to look at"
    )
    doctor.set_defaults(command=_lab_doctor)
    kernel = actions.add_parser("kernel", help="more kernels for the lab")
    kernels = kernel.add_subparsers(required=True, metavar="ACTION")
    build = kernels.add_parser(
        "build", help="User-Mode Linux: fetch Debian's source, build, test, keep (10 minutes of CPU)"
    )
    build.add_argument(
        "--source", default="", metavar="PACKAGE", help="default: the newest linux-source-X.Y of apt"
    )
    build.add_argument("--jobs", type=int, default=0, metavar="N", help="default: as many as processors")
    build.set_defaults(command=_lab_kernel_build)
    fetch = kernels.add_parser(
        "fetch", help="get Debian's kernel for virtual machines, without installing it"
    )
    fetch.add_argument(
        "--package", default="", metavar="PACKAGE", help="default: the one of linux-image-amd64"
    )
    fetch.set_defaults(command=_lab_kernel_fetch)


def _add_spec(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    explain.set_defaults(command=_spec_explain)


def _add_kernel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kernel",
        default="auto",
        choices=["auto", "host", "rootless", "uml", "vm"],
        help="what to run on (default: the first that can; see `kproxy lab doctor`)",
    )
    parser.add_argument(
        "--time", default="real", choices=["real", "virtual"], help="virtual: idle time is skipped (uml)"
    )
    parser.add_argument(
        "--uml-kernel", default="", metavar="PATH", help="a User-Mode Linux kernel; beats $KPROXY_UML_KERNEL"
    )
    parser.add_argument(
        "--memory", type=_count, default=1024, metavar="MIB", help="a guest's memory (default: %(default)s)"
    )
    parser.add_argument(
        "--guests",
        type=_count,
        default=0,
        metavar="N",
        help="how many User-Mode Linuxes share the cases (default: as many as help)",
    )


def _add_cases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--case", action="append", default=[], metavar="GLOB", help="only these cases (repeatable)"
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return number


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("more than 0 is needed")
    return seconds


def _version(_: argparse.Namespace) -> int:
    print(f"kproxy {__version__}")
    return LAWFUL


def _run(words: Sequence[str]) -> int:
    """The daemon reads its words itself: they are kube-proxy's, not argparse's."""
    from kproxy.server import command

    return command.run(words)


def _conformance_run(options: argparse.Namespace) -> int:
    from kproxy.conformance import command
    from kproxy.conformance.options import RunOptions

    return command.run(
        RunOptions(
            proxy=options.proxy,
            binary=options.binary,
            mode=options.mode,
            testbed=options.testbed,
            kernel=options.kernel,
            time=options.time,
            uml_kernel=options.uml_kernel,
            memory=options.memory,
            guests=options.guests,
            iptables=options.iptables,
            apiserver=options.apiserver,
            globs=tuple(options.case),
            slow=options.slow,
            shuffle=options.shuffle,
            parallel=options.parallel,
            patience=options.patience,
            json=options.json,
            evidence=options.evidence,
            where_possible=options.where_possible,
            lacking_packages=options.lacking_packages,
        )
    )


def _conformance_fuzz(options: argparse.Namespace) -> int:
    import secrets

    from kproxy.conformance.fuzz import command
    from kproxy.conformance.options import RunOptions

    run = RunOptions(
        proxy=options.proxy,
        binary=options.binary,
        mode=options.mode or "iptables",
        testbed=options.testbed,
        kernel=options.kernel,
        time=options.time,
        uml_kernel=options.uml_kernel,
        memory=options.memory,
        iptables=options.iptables,
        parallel=options.parallel,
        patience=options.patience,
    )
    mode = options.against_mode or run.mode
    other = replace(run, proxy=options.against or options.proxy, binary=options.against_binary, mode=mode)
    return command.fuzz(
        command.FuzzOptions(
            run=run,
            worlds=options.worlds,
            seed=secrets.randbelow(10**6) if options.seed is None else options.seed,
            only=tuple(options.world),
            against=other if options.against or options.against_mode else None,
            directory=options.out,
            shrink=not options.no_shrink,
            words=tuple(sys.argv[3:]),
        )
    )


def _lab_doctor(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.doctor(options.uml_kernel)


def _lab_kernel_build(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.build_kernel(options.source, options.jobs)


def _spec_explain(options: argparse.Namespace) -> int:
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


def _lab_kernel_fetch(options: argparse.Namespace) -> int:
    from kproxy.lab.kernels import command

    return command.fetch_kernel(options.package)


def _conformance_list(options: argparse.Namespace) -> int:
    from kproxy.conformance import command

    return command.listing(tuple(options.case), tuple(options.regression), json=options.json)


if __name__ == "__main__":
    sys.exit(main())
