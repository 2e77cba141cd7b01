"""``python -m tests.bench``: a proxy's first programming, changes and memory, beside the bare tools in the same run.

Any proxy can be put through it, named as for ``kproxy conformance run``.  Exit status: 0 measured,
and kproxy reached its goals; 1 it missed one, or a proxy does not work; 2 this machine cannot run it; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from kproxy.conformance.options import RunOptions
from kproxy.conformance.placement import NoKernel
from kproxy.conformance.subject import BUNDLED, BadSubject, Subject, load
from kproxy.conformance.testbed import Broken
from kproxy.conformance.testbeds import environment
from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.namespaces import LabError
from kproxy.lab.processes import Xtables
from tests.bench import place, report
from tests.bench.measure import Order, measure
from tests.bench.results import Result, document
from tests.bench.world import Size

BOUND = "kproxy"
"""The subject that must reach the goals, at sizes of `BOUND_FROM` endpoints and more: in smaller clusters the
start of the interpreter is what takes the time."""

BOUND_FROM = 25_000


def main(arguments: Sequence[str]) -> int:
    """Measure all that was asked for and report; the exit status."""
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    if options.kernel != KernelName.HOST.value:
        try:
            if (status := place.elsewhere(arguments, _wanted(options), console.print)) is not None:
                return status
        except NoKernel as reason:
            console.print(str(reason), style="red")
            return 2
    if problems := environment.problems():
        console.print("; ".join(problems), style="red")
        return 2
    try:
        orders = _orders(options)
    except BadSubject as reason:
        console.print(str(reason), style="red")
        return 2
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        return _run(orders, options, console)
    except KeyboardInterrupt:
        return 130


def _wanted(options: argparse.Namespace) -> RunOptions:
    """What the bench needs of a kernel, as a conformance run would say it."""
    return RunOptions(
        mode=options.mode,
        kernel=options.kernel,
        iptables=options.iptables or "auto",
        json=str(options.json or ""),
        evidence=options.results,
    )


def _run(orders: Sequence[Order], options: argparse.Namespace, console: Console) -> int:
    results: list[Result] = []
    status = 0
    for order in orders:
        title = f"{order.subject.name} {order.mode} {order.variant.name.lower()} {order.size}"
        try:
            with console.status(title) as line:
                results.append(asyncio.run(measure(order, lambda text: line.update(f"{title}: {text}"))))  # noqa: B023
        except LabError as reason:
            console.print(f"{title}: {reason}", style="red")
            return 2
        except Broken as reason:
            console.print(f"{title}: {reason}", style="red")
            status = 1
    if results:
        _report(results, orders[0], options, console)
    missed = any(not goal.reached for result in results if _binds(result) for goal in result.goals())
    return 1 if missed else status


def _report(results: list[Result], order: Order, options: argparse.Namespace, console: Console) -> None:
    report.show(console, results)
    for result in results:
        report.verdicts(console, result, binding=_binds(result))
    options.results.mkdir(parents=True, exist_ok=True)
    facts = environment.facts(order.subject, order.variant) | {
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "processors": str(os.cpu_count()),
    }
    where: Path = options.json or options.results / "bench.json"
    where.write_bytes(msgspec.json.format(msgspec.json.encode(document(results, facts))) + b"\n")
    console.print(f"all samples: {where}", highlight=False)
    picture = options.results / "bench.svg"
    if report.plot(results, picture):
        console.print(f"plot: {picture}", highlight=False)


def _binds(result: Result) -> bool:
    size = Size.parse(result.size)
    return result.subject == BOUND and size.services * size.endpoints >= BOUND_FROM


def _orders(options: argparse.Namespace) -> list[Order]:
    subject: Subject = load(options.proxy, options.binary)
    if options.mode not in subject.modes:
        raise BadSubject(f"{subject.name} has no mode {options.mode}; it has {', '.join(subject.modes)}")
    variants = [Xtables[options.iptables.upper()]] if options.iptables else list(_variants(options.mode))
    return [
        Order(
            subject=subject,
            mode=options.mode,
            variant=variant,
            size=size,
            repeat=options.repeat,
            changes=options.changes,
            additions=options.additions,
        )
        for size in options.size or [Size(5000, 5)]
        for variant in variants
    ]


def _variants(mode: str) -> Sequence[Xtables]:
    """Those that make a difference to a mode."""
    return (Xtables.NFT, Xtables.LEGACY) if mode == "iptables" else (environment.variant("auto"),)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--proxy", default=BOUND, help=f"{', '.join(BUNDLED)}, or the path of a subject file")
    add("--binary", default="", help="the proxy's program, where the subject needs one")
    add("--mode", default="iptables")
    add(
        "--kernel",
        choices=place.KERNELS,
        default="auto",
        help="default auto: this one, where it has all the mode needs",
    )
    add("--iptables", choices=("nft", "legacy"), help="default: in iptables mode first nft, then legacy")
    add(
        "--size",
        type=Size.parse,
        action="append",
        metavar="SERVICESxENDPOINTS",
        help="default 5000x5; may be repeated",
    )
    add("--repeat", type=_count, default=3, help="starts; the best counts, as of the floor's (default 3)")
    add("--changes", type=_count, default=20, help="endpoint changes (default 20)")
    add("--additions", type=_count, default=5, help="new Services (default 5)")
    add("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default ./results")
    add("--json", type=Path, metavar="FILE", help="default FOLDER/bench.json")
    return parser


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
