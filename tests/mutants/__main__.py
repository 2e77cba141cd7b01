"""``python -m tests.mutants``: each mutant of the table must be killed by a case.

First a control without a mutation: its cases must pass.  Then each mutant is judged by the cases that cite its
clauses; it is killed when one fails and cites the clause.  Exit status: 0 all killed, 1 a mutant
survived, 2 the control failed or a mutant could not be judged.

A mode that this kernel lacks is judged by rules walked in memory where these can show a mutant, and in a guest, with a
table of its own, where only a kernel can.
"""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from kproxy.conformance.case import Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine import placement
from kproxy.conformance.options import RunOptions
from kproxy.conformance.reports.results import CaseResult, Result
from kproxy.conformance.testbeds import environment
from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.processes import Xtables
from tests.mutants.judge import (
    Judgement,
    Run,
    citing,
    hurried,
    judge,
    judge_by_test,
    run_in_simulator,
    runner_on_kernel,
)
from tests.mutants.mutant import Mutant
from tests.mutants.table import MUTANTS, NONE

ALL_KILLED, SURVIVED, CANNOT_RUN = 0, 1, 2
WIDTH = 140
SHOWN = 2
"""Cases that the table names for a mutant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Arguments of the command line."""

    names: tuple[str, ...]
    testbed: str
    iptables: str
    kernel: str
    parallel: int
    everything: bool

    @property
    def on_kernel(self) -> bool:
        return self.testbed == "netns"

    @property
    def variant(self) -> Xtables:
        """Of iptables, by the abilities of the kernel that this process runs on."""
        return environment.iptables_variant(self.iptables)


def main() -> int:
    """Parse, run, print."""
    options = _options()
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    problems = environment.missing_prerequisites() if options.on_kernel else []
    wanted = [wrong for wrong in MUTANTS if _wanted(wrong, options)]
    if not wanted:
        problems.append("no mutant of that name; `--list` shows them")
    if problems:
        console.print("; ".join(problems), style="bold red")
        return CANNOT_RUN
    started = time.monotonic()
    here, in_memory, elsewhere = _placed(wanted, options)
    codes = [ALL_KILLED]
    with hurried():
        if here or in_memory:
            codes.append(asyncio.run(_session(here, in_memory, options, console)))
    codes += [_in_a_guest(of_mode, options, console) for of_mode in elsewhere]
    code = max(codes)
    console.print(f"{time.monotonic() - started:.0f} s")
    return code


def _options() -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="GLOB", help="only these mutants")
    parser.add_argument("--testbed", default="netns", choices=["netns", "simulator"])
    parser.add_argument("--iptables", default="auto", choices=["auto", "nft", "legacy"])
    parser.add_argument(
        "--kernel",
        default="auto",
        choices=["auto", "host", "uml"],
        help="default auto: this one, where it has all a mode needs",
    )
    parser.add_argument("--parallel", type=int, default=2, metavar="N", help="labs at once")
    parser.add_argument("--all", action="store_true", help="put every case to every mutant")
    parser.add_argument("--list", action="store_true", help="list the mutants and end")
    arguments = parser.parse_args()
    if arguments.list:
        for wrong in MUTANTS:
            print(f"{wrong.name:42} {wrong.about}")
        sys.exit(0)
    return Options(
        names=tuple(arguments.names),
        testbed=arguments.testbed,
        iptables=arguments.iptables,
        kernel=arguments.kernel,
        parallel=arguments.parallel,
        everything=arguments.all,
    )


def _wanted(wrong: Mutant, options: Options) -> bool:
    named = not options.names or any(fnmatch.fnmatchcase(wrong.name, glob) for glob in options.names)
    return named and (options.on_kernel or not wrong.needs_kernel)


def _placed(
    wanted: Sequence[Mutant], options: Options
) -> tuple[list[Mutant], list[Mutant], list[list[Mutant]]]:
    """Mutants to judge by the options, those to judge in memory instead, and those for a guest by mode."""
    if not options.on_kernel or options.kernel == KernelName.HOST.value:
        return list(wanted), [], []
    away = {mode for mode in {wrong.mode for wrong in wanted} if _wants_a_guest(mode, options)}
    here = [wrong for wrong in wanted if wrong.mode not in away]
    in_memory = [wrong for wrong in wanted if wrong.mode in away and not wrong.needs_kernel]
    in_guests = [
        [wrong for wrong in wanted if wrong.mode == mode and wrong.needs_kernel] for mode in sorted(away)
    ]
    return here, in_memory, [of_mode for of_mode in in_guests if of_mode]


def _of_guest(mode: str, options: Options) -> RunOptions:
    return RunOptions(mode=mode, kernel=options.kernel, iptables=options.iptables, globs=())


def _wants_a_guest(mode: str, options: Options) -> bool:
    try:
        return placement.kernel_for_run(_of_guest(mode, options), ()).survey.name is not KernelName.HOST
    except placement.NoKernel:
        return True


def _in_a_guest(wanted: Sequence[Mutant], options: Options, console: Console) -> int:
    """The exit status of the same command for these mutants on the kernel that can run them."""
    names = [wrong.name for wrong in wanted]
    arguments = ["--kernel", KernelName.HOST.value, "--iptables", options.iptables]
    command = [sys.executable, "-m", "tests.mutants", *names, *arguments, "--parallel", str(options.parallel)]
    try:
        chosen = placement.kernel_for_run(run := _of_guest(wanted[0].mode, options), ())
        console.print(str(chosen))
        status = placement.rerun_in_kernel(
            chosen.survey.name, run, [*command, *(["--all"] if options.everything else [])]
        )
    except placement.NoKernel as reason:
        console.print(str(reason), style="bold red")
        return CANNOT_RUN
    assert status is not None
    return status


async def _session(
    here: Sequence[Mutant], in_memory: Sequence[Mutant], options: Options, console: Console
) -> int:
    judgements: list[Judgement] = []
    walked = replace(options, testbed="simulator")
    for wanted, how in ((here, options), (in_memory, walked)):
        for mode in dict.fromkeys(wrong.mode for wrong in wanted):
            of_mode = [wrong for wrong in wanted if wrong.mode == mode]
            able = await _control(of_mode, mode, how, console)
            if able is None:
                return CANNOT_RUN
            judgements += await _judge_all(of_mode, able, how, console)
    console.print(_table(judgements))
    return _sum_up(judgements, console)


async def _control(
    wanted: Sequence[Mutant], mode: str, options: Options, console: Console
) -> list[Case] | None:
    """The cases that cite clauses of mutants, run without a mutation; None if one fails."""
    cited = {case.id for wrong in wanted for case in citing(wrong, CATALOGUE)}
    cases = [case for case in CATALOGUE if options.everything or case.id in cited]
    run = runner_on_kernel(options.variant, options.parallel) if options.on_kernel else run_in_simulator
    results = (await run(replace(NONE, mode=mode), cases)).results if cases else ()
    red = [entry for entry in results if entry.result in {Result.FAILED, Result.BROKEN}]
    green = [entry.case for entry in results if entry.result is Result.PASSED]
    console.print(
        f"control, {mode}: {len(green)} of {len(cases)} cases green, {len(red)} red, "
        f"{_left(results)} not runnable here"
    )
    for entry in red:
        console.print(f"  {entry.case.id}: {entry.reason}", style="red", highlight=False, markup=False)
    return None if red else green


def _left(results: Sequence[CaseResult]) -> int:
    return sum(entry.result in {Result.NOT_RUNNABLE, Result.UNSUPPORTED} for entry in results)


async def _judge_all(
    wanted: Sequence[Mutant], able: Sequence[Case], options: Options, console: Console
) -> list[Judgement]:
    """Judge all mutants, as many at once as labs are allowed; in the simulator one."""
    gate = asyncio.Semaphore(options.parallel if options.on_kernel else 1)
    run: Run = runner_on_kernel(options.variant, parallel=1) if options.on_kernel else run_in_simulator

    async def one(wrong: Mutant) -> Judgement:
        async with gate:
            if wrong.unseen:
                found = await judge_by_test(wrong)
            else:
                found = await judge(wrong, able if options.everything else citing(wrong, able), run)
        console.print(
            f"  {wrong.name}: {_fate(found)} in {found.seconds:.1f} s", style="dim", highlight=False
        )
        return found

    return await asyncio.gather(*map(one, wanted))


def _fate(found: Judgement) -> str:
    if found.killers:
        return "killed"
    return "not judged" if found.trouble else "SURVIVED"


def _table(judgements: Sequence[Judgement]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("mutant", "killed by", "clause"):
        table.add_column(name, overflow="fold")
    table.add_column("s", justify="right")
    for found in judgements:
        killers = "\n".join(found.killers[:SHOWN]) or f"[bold red]{_fate(found)}[/]"
        if len(found.killers) > SHOWN:
            killers += f"\nand {len(found.killers) - SHOWN} of {found.requested} cases"
        unseen = found.mutant.unseen
        clause = f"[dim]a test, for {unseen.why}[/]" if unseen else "\n".join(sorted(found.clauses))
        table.add_row(found.mutant.name, killers, clause, f"{found.seconds:.1f}")
    return table


def _sum_up(judgements: Sequence[Judgement], console: Console) -> int:
    alive = [found for found in judgements if not found.killers]
    console.print(f"\n{len(judgements)} mutants, {len(judgements) - len(alive)} killed, {len(alive)} not")
    for found in alive:
        why = (
            found.trouble
            or f"none of {found.requested} cases that cite {', '.join(sorted(found.mutant.clauses))}"
        )
        console.print(f"  {found.mutant.name}: {_fate(found)}: {found.mutant.about}", style="bold red")
        console.print(f"    {why}", style="red", highlight=False, markup=False)
    if any(not found.trouble for found in alive):
        return SURVIVED
    return CANNOT_RUN if alive else ALL_KILLED


if __name__ == "__main__":
    sys.exit(main())
