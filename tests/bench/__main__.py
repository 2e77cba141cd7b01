"""``python -m tests.bench``: first programming, changes and memory, beside the bare tools in the same run.

Any proxy can be measured, named as for ``kproxy conformance run``, and others beside it.  Exit status:
0 measured, and kproxy reached its goals; 1 it missed one, or the proxy (not one beside it) does not work; 2 this
machine cannot run it; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from rich.console import Console
from rich.status import Status

from kproxy.conformance.engine.placement import NoKernel
from kproxy.conformance.options import RunOptions
from kproxy.conformance.subjects.subject import BUNDLED, InvalidSubject, Subject, load_subject
from kproxy.conformance.testbeds import environment
from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.namespaces import LabError
from kproxy.lab.processes import Xtables
from kproxy.options.arguments import OldName
from tests.bench import datapath, datapath_results, full_load, idle, place, relay, report
from tests.bench.measure import measure
from tests.bench.parameters import Parameters
from tests.bench.results import BOUND_FROM, Goal, Result, document, growth
from tests.bench.world import Crowd, Size

BOUND = "kproxy"
"""The subject that must reach the goals."""

_DATAPATH_SIZES = (Size(100, 1), Size(1000, 1), Size(10_000, 1))
"""One endpoint each: how a packet finds its Service does not depend on endpoints."""


Progress = Callable[[str], None]
"""Shows what is being done."""


class _Found(Protocol):
    @property
    def troubles(self) -> Mapping[str, str]:
        """By subject: why it could not be measured."""


Found = TypeVar("Found", bound=_Found)


def main(arguments: Sequence[str]) -> int:
    """Measure as the arguments specify, and report; returns the exit status."""
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    if options.relay:
        return relay.run(console, options.results)
    if options.kernel != KernelName.HOST.value:
        try:
            if (status := place.elsewhere(arguments, _wanted(options), console.print)) is not None:
                return status
        except NoKernel as reason:
            console.print(str(reason), style="red")
            return 2
    if problems := environment.missing_prerequisites():
        console.print("; ".join(problems), style="red")
        return 2
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        runs = _runs(options)
        if options.idle:
            return _run_idle(runs, options, console)
        return _run_datapath(runs, options, console) if options.datapath else _run(runs, options, console)
    except (InvalidSubject, LabError) as reason:
        console.print(str(reason), style="red")
        return 2
    except KeyboardInterrupt:
        return 130


def _wanted(options: argparse.Namespace) -> RunOptions:
    """Requirements on the kernel, as options of a conformance run."""
    return RunOptions(
        mode=options.mode,
        kernel=options.kernel,
        iptables=options.iptables or "auto",
        json=str(options.json or ""),
        evidence=options.results,
    )


def _measure_all(
    runs: Sequence[Parameters],
    measuring: Callable[[Parameters, Progress], Coroutine[object, object, Found]],
    console: Console,
) -> tuple[list[Found], int]:
    """What was found for each run, and the exit status by the troubles of the proxies; raises `LabError`."""
    found: list[Found] = []
    status = 0
    for parameters in runs:
        try:
            with console.status(parameters.title) as line:
                found.append(
                    asyncio.run(measuring(parameters, partial(_show_progress, line, parameters.title)))
                )
        except LabError as reason:
            raise LabError(f"{parameters.title}: {reason}") from reason
        for name, trouble in found[-1].troubles.items():
            console.print(f"{name} {parameters.title}: {trouble}", style="red", markup=False)
            status = 1 if name == parameters.subjects[0].name else status
    return found, status


def _run(runs: Sequence[Parameters], options: argparse.Namespace, console: Console) -> int:
    found, status = _measure_all(runs, measure, console)
    results = [result for measured in found for result in measured.results]
    if results:
        _report(results, runs[0], options, console)
    return 1 if any(not goal.reached for goal in _binding(results)) else status


def _run_idle(runs: Sequence[Parameters], options: argparse.Namespace, console: Console) -> int:
    """CPU time and memory of proxies at rest; there are no goals."""

    def measuring(parameters: Parameters, progress: Progress) -> Coroutine[object, object, idle.Measured]:
        return idle.measure(parameters, options.idle, options.unrelated, progress)

    found, status = _measure_all(runs, measuring, console)
    results = [result for measured in found for result in measured.results]
    idle.show(console, results)
    facts = _show_facts(runs[0], console)
    _save(idle.document(results, facts), options.json or options.results / "idle.json", console)
    return status


def _run_datapath(runs: Sequence[Parameters], options: argparse.Namespace, console: Console) -> int:
    """The cost of the rules for traffic; there are no goals."""
    crowd = Crowd(options.endpoints) if options.endpoints else None
    extent = datapath.Extent(options.connects, crowd, load=options.load, churn=options.churn)

    def measuring(parameters: Parameters, progress: Progress) -> Coroutine[object, object, datapath.Measured]:
        return datapath.measure(parameters, extent, progress)

    measured, status = _measure_all(runs, measuring, console)
    samples = [sample for each in measured for sample in each.samples]
    loads = [load for each in measured for load in each.loads]
    datapath_results.show(console, samples)
    full_load.show(console, loads)
    facts = _show_facts(runs[0], console)
    found = datapath_results.document(samples, facts) | {"load": full_load.document(loads)}
    _save(found, options.json or options.results / "datapath.json", console)
    picture = options.results / "datapath.svg"
    if datapath_results.plot(samples, picture):
        console.print(f"plot: {picture}", highlight=False)
    return status


def _show_facts(parameters: Parameters, console: Console) -> dict[str, str]:
    facts = _facts(parameters)
    console.print(f"load {facts['load']}, {facts['processors']} processors", highlight=False)
    return facts


def _show_progress(line: Status, title: str, text: str) -> None:
    line.update(f"{title}: {text}")


def _save(found: dict[str, object], where: Path, console: Console) -> None:
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    console.print(f"all samples: {where}", highlight=False)


def _binding(results: Sequence[Result]) -> list[Goal]:
    """The goals that decide the exit status."""
    bound = [result for result in results if result.subject == BOUND]
    return [goal for result in bound if _binds(result) for goal in result.goals()] + list(growth(bound))


def _report(
    results: list[Result], parameters: Parameters, options: argparse.Namespace, console: Console
) -> None:
    report.show(console, results)
    for result in results:
        report.verdicts(console, result, binding=_binds(result))
    report.growth_verdicts(console, growth([result for result in results if result.subject == BOUND]))
    options.results.mkdir(parents=True, exist_ok=True)
    facts = _facts(parameters)
    _save(document(results, facts), options.json or options.results / "bench.json", console)
    picture = options.results / "bench.svg"
    if report.plot(results, picture):
        console.print(f"plot: {picture}", highlight=False)


def _facts(parameters: Parameters) -> dict[str, str]:
    """Environment that the figures depend on, with the version of each proxy."""
    first, *others = parameters.subjects
    versions = {
        f"subject {one.name}": environment.environment_facts(one, parameters.variant)["subject"]
        for one in others
    }
    load = " ".join(f"{load:.2f}" for load in os.getloadavg())
    return (
        environment.environment_facts(first, parameters.variant)
        | versions
        | {"load": load, "processors": str(os.cpu_count())}
    )


def _binds(result: Result) -> bool:
    return result.subject == BOUND and result.endpoints >= BOUND_FROM


def _runs(options: argparse.Namespace) -> list[Parameters]:
    subjects = _subjects(options)
    variants = [Xtables[options.iptables.upper()]] if options.iptables else list(_variants(options.mode))
    return [
        Parameters(
            subjects=subjects,
            mode=options.mode,
            variant=variant,
            size=size,
            repeat=options.repeat,
            changes=options.changes,
            additions=options.additions,
            patience=options.sync_timeout,
            budget=options.budget,
        )
        for size in options.size or (_DATAPATH_SIZES if options.datapath else [Size(5000, 5)])
        for variant in variants
    ]


def _subjects(options: argparse.Namespace) -> tuple[Subject, ...]:
    """The proxy, and those beside it; each has a name of its own."""
    subjects = [load_subject(options.proxy, options.binary)]
    for text in options.versus:
        name, _, binary = text.partition("=")
        subjects.append(load_subject(name, binary))
    for number, subject in enumerate(subjects):
        if options.mode not in subject.modes:
            raise InvalidSubject(
                f"{subject.name} has no mode {options.mode}; it has {', '.join(subject.modes)}"
            )
        if any(other.name == subject.name for other in subjects[:number]):
            raise InvalidSubject(f"two subjects are called {subject.name}: give one a file with another name")
    return tuple(subjects)


def _variants(mode: str) -> Sequence[Xtables]:
    """Variants of iptables that matter to a mode."""
    return (Xtables.NFT, Xtables.LEGACY) if mode == "iptables" else (environment.iptables_variant("auto"),)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--proxy", default=BOUND, help=f"{', '.join(BUNDLED)}, or the path of a subject file")
    add("--binary", default="", help="the proxy's program, where the subject needs one")
    add(
        "--versus",
        action="append",
        default=[],
        metavar="PROXY[=BINARY]",
        help="another proxy, on the same world in the same run; may be repeated",
    )
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
    add("--datapath", action="store_true", help="what the rules cost traffic: time of new connections")
    add(
        "--idle",
        type=float,
        nargs="?",
        const=60.0,
        metavar="SECONDS",
        help="CPU time and memory of a proxy with nothing to do, over so many seconds (60)",
    )
    add(
        "--unrelated",
        type=int,
        default=0,
        metavar="N",
        help="with --idle: changes of slices a second that concern no rule (default 0)",
    )
    add(
        "--relay",
        action="store_true",
        help="userspace mode's relay beside asyncio, socat, haproxy and the kernel",
    )
    add(
        "--connects",
        type=_count,
        default=4000,
        help="with --datapath: connections to each destination (default 4000)",
    )
    add(
        "--endpoints",
        type=int,
        default=5000,
        help="with --datapath: endpoints of one more Service (default 5000; 0: no such Service)",
    )
    add(
        "--load", type=int, default=0, metavar="TURNS", help="with --datapath: turns of full load (default 0)"
    )
    add(
        "--churn",
        type=float,
        nargs="?",
        const=20.0,
        default=0.0,
        metavar="SECONDS",
        help="with --datapath: connections while endpoints, and then Services, change for so many seconds (20)",
    )
    add("--repeat", type=_count, default=3, help="starts; the best counts, as of the floor's (default 3)")
    add("--changes", type=_count, default=20, help="endpoint changes (default 20)")
    add("--additions", type=_count, default=5, help="new Services (default 5)")
    text = "for a start or a change (default 600)"
    add("--sync-timeout", type=float, default=600.0, metavar="SECONDS", help=text)
    add(
        "--patience",
        action=OldName,
        const="--sync-timeout",
        dest="sync_timeout",
        type=float,
        default=600.0,
        help=argparse.SUPPRESS,
    )
    add(
        "--budget",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="when a proxy has had so long for its starts, or its changes, it gets no more (default 600)",
    )
    add("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default ./results")
    add("--json", type=Path, metavar="FILE", help="default FOLDER/bench.json")
    return parser


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
