"""The page that puts the kept results of real proxies beside one another."""

from collections.abc import Sequence
from pathlib import Path

from kproxy.conformance.reports import markdown
from kproxy.conformance.reports.comparison import compare_runs
from kproxy.conformance.reports.profiles import ProfileVerdict, judge_profiles
from kproxy.conformance.reports.results_reader import DocumentRead, RunRead, load_results
from tools.docgen.tables import markdown_table

FOLDER = Path(__file__).parents[2] / "docs/results"

_DIFFERENCES = "### What differs"
"""The heading at which the page begins; the list of failures above it is in the documents."""

_HEAD = """\
<!-- Generated: edit docs/results/*.json, then run `python -m tools.docgen`. -->

# Results side by side

[What they are and how to repeat them](README.md).
"""


def page() -> str:
    """The page."""
    documents = load_results([str(file) for file in sorted(FOLDER.glob("*.json"))])
    sums, differences, rest = markdown.render_markdown(compare_runs(documents)).partition(_DIFFERENCES)
    without_failures = sums.partition("\n### ")[0]
    return f"{_HEAD}\n{_profiles(documents)}\n\n{without_failures.rstrip()}\n\n{differences}{rest.rstrip()}\n"


def _profiles(documents: Sequence[DocumentRead]) -> str:
    """Tables of the verdicts: core, a row for each run; extended features, a column for each."""
    runs = [(document, run, judge_profiles(run)) for document in documents for run in document.runs]
    heads = ("subject", "mode", "version", "judged", "core")
    core = markdown_table("### Profiles", heads, [_core_row(*one) for one in runs]).strip()
    names = sorted({name for _, _, verdict in runs for name in verdict.supported}, key=str.lower)
    columns = [f"{run.subject} {run.name or run.mode}" for _, run, _ in runs]
    rows = [(name, *("✓" if name in verdict.supported else "" for _, _, verdict in runs)) for name in names]
    return f"{core}\n\n{markdown_table('### Extended features', ('feature', *columns), rows).strip()}"


def _core_row(document: DocumentRead, run: RunRead, verdict: ProfileVerdict) -> tuple[str, ...]:
    version = (run.environment.get("subject") or "").partition("\n")[0]
    core = f"{verdict.word} {len(verdict.passed)}/{verdict.total}"
    day = document.date.partition("T")[0] or "before results had dates"
    return (run.subject, run.name or run.mode, version, day, core)
