"""Kernel of a replica: the first that can, as `kproxy conformance run` chooses; the command starts again in it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from kproxy.conformance.engine import placement
from kproxy.conformance.options import RunOptions
from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.kernels.choice import KernelNeeds, pick_kernel
from kproxy.lab.namespaces import LabError
from kproxy.tools.lab_session.layout import CannotCopy


def restart_in_kernel(
    kernel: str,
    modes: Sequence[str],
    arguments: Sequence[str],
    iptables: str,
    allowed: Collection[KernelName] = frozenset({KernelName.HOST, KernelName.ROOTLESS, KernelName.UML}),
) -> int | None:
    """Exit status of the same command in another kernel; None when it is to run in this process.

    ``arguments``: the command's, without ``--kernel``. Its output is this process's, which is the file of ``--output``
    already. Raises `CannotCopy`.
    """
    if kernel == "host":
        return None
    runs = [RunOptions(mode=mode, kernel=kernel, iptables=iptables) for mode in modes]
    always = frozenset(need for run in runs for need in placement.kernel_needs(run, ()).always)
    try:
        abilities = (ability for need in always for ability in need)
        every = placement.surveyors(runs[0], abilities)
        chosen = pick_kernel(
            {k: look for k, look in every.items() if k in allowed}, KernelNeeds(always=always)
        )
        argv = [sys.executable, "-m", "kproxy", *arguments, "--kernel", "host", "--output", "-"]
        return placement.rerun_in_kernel(chosen.survey.name, RunOptions(mode=modes[0], kernel=kernel), argv)
    except (LabError, placement.NoKernel) as reason:
        raise CannotCopy(str(reason)) from reason
