"""``kproxy conformance report``: the runs of several documents compared, in every form; ``verify``: one, for submission."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from kproxy.conformance.reports import badge, comparison_console, results_document, verification
from kproxy.conformance.reports.comparison import compare_runs
from kproxy.conformance.reports.outputs import (
    OutputError,
    Outputs,
    write_comparison,
    write_comparison_document,
)
from kproxy.conformance.reports.results import CANNOT_RUN, LAWFUL, UNLAWFUL
from kproxy.conformance.reports.results_reader import InvalidResults, load_results, read_document
from kproxy.conformance.reports.verification import Verification
from kproxy.console import Console
from kproxy.documents import print_document


def report_files(files: Sequence[str], outputs: Outputs) -> int:
    """Print what differs and write the requested forms; returns 0, or 2 if a file holds no results."""
    try:
        outputs.check()
        comparison = compare_runs(load_results(files))
        comparison_console.print_comparison(comparison, Console(stderr=outputs.takes_standard_output))
        write_comparison(comparison, outputs)
        write_comparison_document(comparison, outputs)
    except (InvalidResults, OutputError) as reason:
        console = Console(stderr=True)
        console.print(f"kproxy conformance report: {reason}", style="bold", markup=False, soft_wrap=True)
        return CANNOT_RUN
    return 0


def verify_file(file: str, form: str) -> int:
    """Print what is found of submitted results; 0 verified and core passed, 1 core did not pass, 2 not verified."""
    try:
        found = verification.verify(read_document(file), file)
    except InvalidResults as reason:
        _print_error(f"kproxy conformance verify: {reason}")
        return CANNOT_RUN
    match form:
        case "svg":
            sys.stdout.write(badge.badge_svg(found))
        case "shields":
            print_document(badge.shields_endpoint(found), "json")
        case "json" | "yaml":
            print_document(_verification_document(found), form)
        case _:
            sys.stdout.writelines(f"{line}\n" for line in _verification_lines(found))
    for problem in found.problems:
        _print_error(f"kproxy conformance verify: {file}: {problem}")
    if found.problems:
        return CANNOT_RUN
    return LAWFUL if found.conformant else UNLAWFUL


def _verification_document(found: Verification) -> dict[str, object]:
    return {
        "verified": not found.problems,
        "problems": list(found.problems),
        "implementation": dict(found.implementation),
        "date": found.date,
        "profiles": {name: verdict.document() for name, verdict in found.verdicts.items()},
    }


def _verification_lines(found: Verification) -> Iterator[str]:
    about = found.implementation
    yield f"{about.get('project', 'unknown')} {about.get('version', '')}".rstrip() + f", judged {found.date}"
    for name, verdict in found.verdicts.items():
        yield f"{name}: {verdict}"
        yield from (f"  not passed: {id}" for id in (*verdict.failed, *verdict.missing))
        yield from (f"  {feature}: not lawful" for feature in verdict.unlawful)
        yield from (f"  {feature}: not all of it could be run" for feature in verdict.incomplete)


def _print_error(text: str) -> None:
    Console(stderr=True).print(text, style="bold", markup=False, highlight=False, soft_wrap=True)


def print_results_schema() -> int:
    """Print the JSON Schema of results."""
    sys.stdout.write(results_document.results_schema())
    return 0
