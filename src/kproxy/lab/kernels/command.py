"""``kproxy lab doctor`` and ``kproxy lab kernel``: kernels that this machine can run the lab on, and how to get more."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from kproxy.console import Console
from kproxy.documents import TEXT, print_document
from kproxy.lab.kernels import boot, choice, host, rootless, uml, vm
from kproxy.lab.kernels.abilities import Ability, KernelName, KernelSurvey, find_system_programs
from kproxy.lab.kernels.build import SELF_TEST, ProgressCallback, Recipe, build_uml_kernel
from kproxy.lab.namespaces import LabError

DONE, FAILED, CANNOT = 0, 1, 2


def run_doctor(explicit: str = "", form: str = TEXT) -> int:
    """Print each kernel's abilities, and remedies for missing ones; 0 when the lab can be run on one of them."""
    find_system_programs()
    try:
        if explicit:
            uml.find_uml_kernel(explicit)
    except LabError as reason:
        Console(stderr=True).print(
            f"kproxy lab doctor: {reason}", highlight=False, markup=False, soft_wrap=True
        )
        return CANNOT
    console = Console()
    surveys = [
        host.survey_host(),
        rootless.survey_rootless(),
        _booted(uml.survey_uml(explicit), explicit),
        vm.survey_vm(),
    ]
    if form != TEXT:
        print_document(
            {"schema": "kproxy-lab-doctor/1", "kernels": list(map(_survey_document, surveys))}, form
        )
    else:
        console.print(abilities_table(surveys))
        for line in (*kernel_advice(surveys), "", simulation_advice(surveys, uml.universe_obstacle())):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    return DONE if any(not survey.unusable for survey in surveys) else CANNOT


def _survey_document(survey: KernelSurvey) -> dict[str, object]:
    """A kernel as data: why each ability is missing, or an empty text; ``unusable`` and ``fix`` if nothing can run there."""
    found = {ability.value: reason for ability, reason in survey.obstacles.items()}
    return {
        "name": survey.name.value,
        "what": survey.what,
        "unusable": survey.unusable,
        "fix": survey.fix,
        "missing": found,
    }


def _booted(survey: KernelSurvey, explicit: str) -> KernelSurvey:
    """Survey of a User-Mode Linux kernel by booting it, rather than by its configuration."""
    if survey.unusable:
        return survey
    try:
        return replace(survey, obstacles=boot.probe_kernel(uml.find_uml_kernel(explicit)))
    except LabError as reason:
        return replace(survey, unusable=str(reason), fix=uml.BUILD)


def abilities_table(surveys: Sequence[KernelSurvey]) -> Table:
    """Table of abilities (rows) and kernels (columns)."""
    result = Table(box=None, pad_edge=False, header_style="bold")
    result.add_column("")
    for survey in surveys:
        result.add_column(survey.name.value)
    for ability in Ability:
        result.add_row(ability.value, *(ability_cell(survey, ability) for survey in surveys))
    return result


def ability_cell(survey: KernelSurvey, ability: Ability) -> str:
    """Cell of the table, in rich's markup."""
    if survey.unusable:
        return "[dim]-[/]"
    if ability not in survey.obstacles:
        return "[dim]?[/]"
    return "[red]no[/]" if survey.obstacles[ability] else "[green]yes[/]"


def kernel_advice(surveys: Sequence[KernelSurvey]) -> Iterator[str]:
    """Lines that describe each kernel, the reasons for missing abilities, and the remedies."""
    for survey in surveys:
        yield ""
        if survey.unusable:
            yield f"{survey.name.value}: {survey.unusable}"
            yield from [f"    {survey.fix}"] if survey.fix else []
            continue
        yield f"{survey.name.value}: {survey.what}"
        for ability, reason in survey.obstacles.items():
            if reason:
                yield f"  {ability.value}: {reason}"
                yield f"    {choice.ability_fix(survey, ability)}"


OF_MODES = (
    Ability.IPTABLES_NFT,
    Ability.IPTABLES_LEGACY,
    Ability.NFTABLES,
    Ability.IPSET,
    Ability.IP_VS,
    Ability.DUMMY,
)
"""Abilities that some modes need, and others do not."""


def simulation_advice(surveys: Sequence[KernelSurvey], obstacle: str = "") -> str:
    """Line that says what `kproxy simulate` lacks, with the remedy; ``obstacle``: why this machine can start no universe."""
    (survey,) = (one for one in surveys if one.name is KernelName.UML)
    if survey.unusable or survey.obstacles.get(Ability.TIME_TRAVEL, "unknown"):
        return f"kproxy simulate: needs a kernel whose clock can be held: {uml.BUILD}"
    if obstacle:
        return f"kproxy simulate: this machine can start no universe: {obstacle}"
    lacks = [ability.value for ability in OF_MODES if survey.obstacles.get(ability)]
    without = f"; modes that need {', '.join(lacks)} cannot be simulated: {uml.BUILD}" if lacks else ""
    return f"kproxy simulate: runs on uml ({survey.what}){without}"


def build_kernel(package: str, jobs: int, form: str = TEXT) -> int:
    """Build a User-Mode Linux kernel into the cache; 0 when it has passed its self-test."""
    recipe = Recipe(cache=uml.cache_folder(), package=package, jobs=jobs or len(os.sched_getaffinity(0)))
    names = ", ".join(ability.value for ability in SELF_TEST)
    done = f"used once each, and working: {names}"
    return _made("build", lambda report: build_uml_kernel(recipe, _self_test, report), done, form)


def fetch_kernel(package: str, form: str = TEXT) -> int:
    """Fetch a distribution's kernel for virtual machines into the cache; 0 on success."""
    done = "kproxy conformance run --kernel vm uses it"
    return _made("fetch", lambda report: vm.fetch_vm_kernel(package, report), done, form)


def _made(verb: str, make: Callable[[ProgressCallback], Path], done: str, form: str) -> int:
    """Make a kernel with a live progress line, and print its path and a remark."""
    find_system_programs()
    console = Console(stderr=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with console.status("starting") as status:
            live = console.is_terminal

            def show_progress(text: str) -> None:
                status.update(escape(text))
                if not live and not text.startswith("compiling"):
                    console.print(text, highlight=False, markup=False, soft_wrap=True)

            path = make(show_progress)
    except (LabError, PermissionError) as reason:
        cause = str(reason)
        if isinstance(reason, PermissionError):
            cause = f"{reason.filename}: {reason.strerror}; XDG_CACHE_HOME names the folder of kernels"
        text = f"kproxy lab kernel {verb}: {cause}"
        console.print(text, style="bold", highlight=False, markup=False, soft_wrap=True)
        return FAILED
    if form == TEXT:
        Console().print(f"{path}\n{done}", highlight=False, soft_wrap=True)
    else:
        print_document({"schema": "kproxy-lab-kernel/1", "kernel": str(path), "remark": done}, form)
    return DONE


def _self_test(path: Path) -> Mapping[Ability, str]:
    return boot.probe_kernel(uml.inspect_uml_kernel(path, "new"))
