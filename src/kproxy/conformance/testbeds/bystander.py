"""The machine beside the lab: a run that changes it is not worth publishing, whoever did it."""

from __future__ import annotations

from collections.abc import Callable

from kproxy.conformance.reports.results import Report
from kproxy.lab import machine
from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.kernels.here import kernel_here


def left_alone(work: Callable[[], Report]) -> Report:
    """The report of a run; where this machine was changed meanwhile nothing has passed.  A guest is nobody's machine."""
    if kernel_here() in (KernelName.UML, KernelName.VM):
        return work()
    before = machine.look()
    report = work()
    changes = machine.changes(before, machine.look())
    if not changes:
        return report
    what = "; ".join(changes)
    return report.spoilt(
        f"this machine was changed while the run went on, by the subject or by somebody else: {what}"
    )
