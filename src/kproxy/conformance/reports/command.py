"""``kproxy conformance report``: runs of several documents beside one another, in every form."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kproxy.conformance.reports import differences, document
from kproxy.conformance.reports.comparison import compare
from kproxy.conformance.reports.outputs import CannotWrite, Outputs, write_comparison
from kproxy.conformance.reports.reading import BadResults, load
from kproxy.conformance.reports.results import CANNOT_RUN
from kproxy.console import Console


def report(files: Sequence[str], outputs: Outputs) -> int:
    """Tell what differs and write what is wanted; 0, or 2 when a file holds no results."""
    try:
        outputs.check()
        comparison = compare(load(files))
        differences.show(comparison, Console(stderr=outputs.takes_standard_output))
        write_comparison(comparison, outputs)
    except (BadResults, CannotWrite) as reason:
        console = Console(stderr=True)
        console.print(f"kproxy conformance report: {reason}", style="bold", markup=False, soft_wrap=True)
        return CANNOT_RUN
    return 0


def print_schema() -> int:
    """Print the JSON Schema of results."""
    sys.stdout.write(document.schema())
    return 0
