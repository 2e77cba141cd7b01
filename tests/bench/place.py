"""Placement of a bench: this machine's kernel or, where that lacks a requirement of the mode, one that has it.

All of a run happens on one kernel: figures of different kernels cannot be compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from kproxy.conformance.engine import placement
from kproxy.conformance.options import RunOptions
from kproxy.lab.kernels.abilities import KernelName

KERNELS = ("auto", "host", "uml")


def elsewhere(arguments: Sequence[str], wanted: RunOptions, progress: Callable[[str], None]) -> int | None:
    """The exit status of the same bench on the kernel that ``wanted`` selects; None: it is to be run here.

    Raises `placement.NoKernel` when no kernel can run it.
    """
    chosen = placement.kernel_for_run(wanted, ())
    if chosen.survey.name is KernelName.HOST:
        return None
    progress(str(chosen))
    command = [sys.executable, "-m", __package__, *arguments, "--kernel", KernelName.HOST.value]
    return placement.rerun_in_kernel(chosen.survey.name, wanted, command)
