"""Placement of a run: the abilities it needs, the kernel chosen, and how it is started there.

The whole process runs inside the chosen kernel: the same command line with ``--kernel host``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from kproxy.conformance.case import Case
from kproxy.conformance.options import RunOptions, run_arguments
from kproxy.conformance.testbeds.environment import case_needs, mode_needs
from kproxy.lab.kernels import boot, host, rootless, uml, vm
from kproxy.lab.kernels.abilities import Ability, KernelName, KernelSurvey, find_system_programs
from kproxy.lab.kernels.choice import KernelChoice, KernelNeeds, Need, Surveyors, pick_kernel, reason_against
from kproxy.lab.namespaces import LabError


class NoKernel(Exception):
    """No kernel can execute the run, or the chosen one failed; the message has the remedy."""


LAB_NEEDS: frozenset[Need] = frozenset(
    {
        frozenset({Ability.NAMESPACES}),
        frozenset({Ability.VETH}),
        frozenset({Ability.BRIDGE}),
        frozenset({Ability.CONNTRACK}),
        frozenset({Ability.NFTABLES, Ability.IPTABLES_LEGACY}),
    }
)
"""Abilities that the lab itself needs, for any subject."""


def kernel_needs(options: RunOptions, cases: Iterable[Case]) -> KernelNeeds:
    """Abilities that a run needs: cases chosen by name should all run, of the whole catalogue some may be left out."""
    always = LAB_NEEDS | mode_needs(options.mode, options.iptables)
    if options.time == uml.Time.VIRTUAL.value:
        always |= {frozenset({Ability.TIME_TRAVEL})}
    fully = frozenset(need for case in cases for need in case_needs(case, options.mode))
    return KernelNeeds(always=always, fully=fully - always, insist=bool(options.globs))


def surveyors(options: RunOptions, wanted: Iterable[Ability]) -> Surveyors:
    """Surveyors of the kernels that these options allow; each kernel is surveyed once at most."""
    find_system_programs()
    abilities = sorted(set(wanted), key=list(Ability).index)
    surveys: dict[KernelName, Callable[[], KernelSurvey]] = {
        KernelName.HOST: lambda: host.survey_host(abilities),
        KernelName.ROOTLESS: lambda: rootless.survey_rootless(abilities),
        KernelName.UML: lambda: uml.survey_uml(options.uml_kernel),
        KernelName.VM: vm.survey_vm,
    }
    return {name: cache(look) for name, look in surveys.items() if options.kernel in {"auto", name.value}}


def kernel_for_run(
    options: RunOptions, cases: Sequence[Case], kernels: Surveyors | None = None
) -> KernelChoice:
    """Kernel for a run; ``kernels``: surveys shared by several runs.

    Raises `NoKernel` when there is none.
    """
    wanted = kernel_needs(options, cases)
    abilities = (ability for need in wanted.always | wanted.fully for ability in need)
    try:
        return pick_kernel(kernels or surveyors(options, abilities), wanted)
    except LabError as reason:
        raise NoKernel(str(reason)) from reason


def missing_kernel_packages(options: RunOptions, cases: Sequence[Case], kernels: Surveyors) -> frozenset[str]:
    """Debian packages that would give a run its kernel; none when it has one, or packages do not help."""
    try:
        kernel_for_run(options, cases, kernels)
    except NoKernel:
        stock = KernelSurvey(name=KernelName.UML, obstacles=uml.STOCK_OBSTACLES)
        helps = KernelName.UML in kernels and not reason_against(stock, kernel_needs(options, cases).always)
        return uml.missing_packages(options.uml_kernel) if helps else frozenset()
    return frozenset()


def can_share_run(chosen: KernelChoice) -> bool:
    """True if several kernels of this kind can share a run."""
    return chosen.survey.name is KernelName.UML


def rerun_in_kernel(kernel: KernelName, options: RunOptions, command: Sequence[str] = ()) -> int | None:
    """Run these options, or a command, in that kernel and return the exit status; None for this process's own.

    Raises `NoKernel`, and KeyboardInterrupt when the user killed a guest.
    """
    if kernel is KernelName.HOST:
        return None
    argv = list(command) or [sys.executable, "-m", "kproxy", *run_arguments(options_inside_kernel(options))]
    if kernel is KernelName.ROOTLESS:
        rootless.exec_rootless(argv)
    order = vm_job(options, argv) if kernel is KernelName.VM else uml_job(options, argv)
    try:
        status = boot.run_job(order, boot.THROUGH)
    except LabError as reason:
        raise NoKernel(str(reason)) from reason
    return status


def options_inside_kernel(options: RunOptions) -> RunOptions:
    """Options of the process inside the kernel; in virtual time slow cases cost nothing, so they are included."""
    slow = options.slow or options.time == uml.Time.VIRTUAL.value
    return replace(options, kernel="host", time="real", uml_kernel="", guests=0, slow=slow)


def uml_job(options: RunOptions, argv: Sequence[str]) -> uml.UmlJob:
    """Command as a guest's job. Raises `NoKernel` when the guest could not write one of its output files."""
    for path in (Path.cwd(), options.evidence, *options.outputs.files):
        if not uml.visible(path):
            raise NoKernel(
                f"{path.absolute()}: a guest has its own {', '.join(uml.HIDDEN)}; choose another folder"
            )
    return uml.UmlJob(
        kernel=uml.find_uml_kernel(options.uml_kernel),
        argv=argv,
        environment={**os.environ, **terminal_environment(options), "TMPDIR": uml.SCRATCH},
        cwd=Path.cwd(),
        memory=options.memory,
        time=uml.Time(options.time),
    )


def vm_job(options: RunOptions, argv: Sequence[str]) -> vm.VmJob:
    """Command as a virtual machine's job; the folders that it writes to are shared."""
    results = [path.absolute().parent for path in options.outputs.files]
    options.evidence.absolute().parent.mkdir(parents=True, exist_ok=True)
    return vm.VmJob(
        kernel=vm.images_here()[0],
        argv=argv,
        environment={**os.environ, **terminal_environment(options)},
        cwd=Path.cwd(),
        writable=[options.evidence.absolute().parent, *results],
        memory=options.memory,
        fast=vm.accelerated(),
    )


def terminal_environment(options: RunOptions) -> dict[str, str]:
    """Environment that makes a guest's output, which is a file to it, look as in this terminal.

    In virtual time nothing may be animated: a spinner would be drawn for every skipped moment.
    """
    stream = sys.stderr if options.outputs.takes_standard_output else sys.stdout
    if not stream.isatty():
        return {}
    size = os.get_terminal_size(stream.fileno())
    still = {"TTY_INTERACTIVE": "0"} if options.time == uml.Time.VIRTUAL.value else {}
    return {"FORCE_COLOR": "1", "COLUMNS": str(size.columns), "LINES": str(size.lines), **still}
