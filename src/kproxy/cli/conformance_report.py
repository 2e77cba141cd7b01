"""Words of ``kproxy conformance report``, and those for the forms of results, which ``run`` has too."""

from __future__ import annotations

import argparse

from kproxy.cli.arguments import Commands

_FORMS = {
    "junit": "write results as JUnit XML",
    "markdown": "write results as Markdown, such as a CI job's summary",
    "html": "write results as one HTML file that needs no network",
}


def add_report_command(actions: Commands) -> None:
    """The words of the action."""
    report = actions.add_parser("report", help="put results of several runs beside one another")
    report.add_argument("files", nargs="*", metavar="FILE.json", help="what `run --json` wrote")
    report.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of results, and do no more"
    )
    add_output_options(report)
    report.set_defaults(command=lambda options: _report(options, report))


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """The forms that are written to files."""
    for name, text in _FORMS.items():
        parser.add_argument(f"--{name}", default="", metavar="FILE", help=f"{text}; - for standard output")


def _report(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from kproxy.conformance.reports import command
    from kproxy.conformance.reports.outputs import Outputs

    if options.schema:
        return command.print_results_schema()
    if not options.files:
        parser.error("give at least one FILE.json, or --schema")
    return command.report_files(options.files, Outputs(**{name: getattr(options, name) for name in _FORMS}))
