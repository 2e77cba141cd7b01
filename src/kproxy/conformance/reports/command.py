"""``kproxy conformance report``: the runs of several documents compared, in every form."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kproxy.conformance.reports import comparison_console, results_document
from kproxy.conformance.reports.comparison import compare_runs
from kproxy.conformance.reports.outputs import OutputError, Outputs, write_comparison
from kproxy.conformance.reports.results import CANNOT_RUN
from kproxy.conformance.reports.results_reader import InvalidResults, load_results
from kproxy.console import Console


def report_files(files: Sequence[str], outputs: Outputs) -> int:
    """Print what differs and write the requested forms; returns 0, or 2 if a file holds no results."""
    try:
        outputs.check()
        comparison = compare_runs(load_results(files))
        comparison_console.print_comparison(comparison, Console(stderr=outputs.takes_standard_output))
        write_comparison(comparison, outputs)
    except (InvalidResults, OutputError) as reason:
        console = Console(stderr=True)
        console.print(f"kproxy conformance report: {reason}", style="bold", markup=False, soft_wrap=True)
        return CANNOT_RUN
    return 0


def print_results_schema() -> int:
    """Print the JSON Schema of results."""
    sys.stdout.write(results_document.results_schema())
    return 0
