"""Changes of the machine beside the lab, made by others during a run.

Changes that a lab's namespaces depend on invalidate the run. Any other is reported and changes no verdict: no packet
of a case traverses the machine's own rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kproxy.conformance.reports.results import Report
from kproxy.lab.faults import machine_state
from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.kernels.current import kernel_here

_CHANGED = "this machine was changed while the run went on, by the subject or by another process"


def report_machine_changes(work: Callable[[], Report]) -> Report:
    """Report of the run, with the changes to this machine's rules and sysctls made during it.

    Not checked inside a guest kernel, which only the run uses.
    """
    if kernel_here() in (KernelName.UML, KernelName.VM):
        return work()
    before = machine_state.read_machine_state()
    report = work()
    after = machine_state.read_machine_state()
    if spoiling := machine_state.machine_state_changes(
        machine_state.inherited_by_labs(before), machine_state.inherited_by_labs(after)
    ):
        return report.invalidated(f"{_CHANGED}: {'; '.join(spoiling)}")
    if changes := machine_state.machine_state_changes(before, after):
        noted = {**report.environment, "machine": f"{_CHANGED}; no case depends on it: {'; '.join(changes)}"}
        return replace(report, environment=noted)
    return report
