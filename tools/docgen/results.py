"""The pages that put the kept results of real proxies, and of releases of kube-proxy, beside one another."""

from collections.abc import Sequence
from pathlib import Path

from kproxy.conformance.reports import markdown
from kproxy.conformance.reports.comparison import Column, Comparison, compare_runs
from kproxy.conformance.reports.profiles import ProfileVerdict, judge_profiles
from kproxy.conformance.reports.results_reader import DocumentRead, load_results
from tools.docgen.tables import markdown_table

FOLDER = Path(__file__).parents[2] / "docs/results"

_DIFFERENCES = "### What differs"
"""The heading at which the page begins; the list of failures above it is in the documents."""

_HEAD = """\
<!-- Generated: edit {folder}/*.json, then run `python -m tools.docgen`. -->

# {title}

[What they are and how to repeat them](README.md).
"""


def page() -> str:
    """The page of all subjects."""
    return _page(FOLDER, "Results side by side")


def versions_page() -> str:
    """The page of releases of kube-proxy."""
    return _page(FOLDER / "versions", "Releases of kube-proxy side by side")


def _page(folder: Path, title: str) -> str:
    documents = load_results([str(file) for file in sorted(folder.glob("*.json"))])
    comparison = compare_runs(documents)
    sums, differences, rest = markdown.render_markdown(comparison).partition(_DIFFERENCES)
    without_failures = sums.partition("\n### ")[0]
    head = _HEAD.format(folder=folder.relative_to(FOLDER.parents[1]), title=title)
    profiles = _profiles(documents, comparison)
    return f"{head}\n{profiles}\n\n{without_failures.rstrip()}\n\n{differences}{rest.rstrip()}\n"


def _profiles(documents: Sequence[DocumentRead], comparison: Comparison) -> str:
    """Tables of the verdicts: core, a row for each run; extended features, a column for each."""
    dates = [document.date for document in documents for _ in document.runs]
    verdicts = [judge_profiles(column.run) for column in comparison.columns]
    rows = [_core_row(*one) for one in zip(comparison.columns, dates, verdicts, strict=True)]
    core = markdown_table("### Profiles", ("run", "version", "judged", "core"), rows).strip()
    names = sorted({name for verdict in verdicts for name in verdict.supported}, key=str.lower)
    heads = ("feature", *(column.name for column in comparison.columns))
    marks = [(name, *("✓" if name in verdict.supported else "" for verdict in verdicts)) for name in names]
    return f"{core}\n\n{markdown_table('### Extended features', heads, marks).strip()}"


def _core_row(column: Column, date: str, verdict: ProfileVerdict) -> tuple[str, ...]:
    core = f"{verdict.word} {len(verdict.passed)}/{verdict.total}"
    version = (column.run.environment.get("subject") or "").partition("\n")[0]
    return (column.name, version, date.partition("T")[0] or "before results had dates", core)
