"""The pages that put the kept results of real proxies, and of releases of kube-proxy, beside one another."""

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
    sums, differences, rest = markdown.render_markdown(compare_runs(documents)).partition(_DIFFERENCES)
    without_failures = sums.partition("\n### ")[0]
    head = _HEAD.format(folder=folder.relative_to(FOLDER.parents[1]), title=title)
    return f"{head}\n{_profiles(documents)}\n\n{without_failures.rstrip()}\n\n{differences}{rest.rstrip()}\n"


def _profiles(documents: Sequence[DocumentRead]) -> str:
    """Tables of the verdicts: core, a row for each run; extended features, a column for each."""
    runs = [(document, run, judge_profiles(run)) for document in documents for run in document.runs]
    heads = ("subject", "mode", "version", "judged", "core")
    core = markdown_table("### Profiles", heads, [_core_row(*one) for one in runs]).strip()
    names = sorted({name for _, _, verdict in runs for name in verdict.supported}, key=str.lower)
    columns = [f"{run.subject} {run.name or run.mode}" for _, run, _ in runs]
    if len(set(columns)) < len(columns):
        columns = [f"{_version(run)} {run.name or run.mode}" for _, run, _ in runs]
    rows = [(name, *("✓" if name in verdict.supported else "" for _, _, verdict in runs)) for name in names]
    return f"{core}\n\n{markdown_table('### Extended features', ('feature', *columns), rows).strip()}"


def _core_row(document: DocumentRead, run: RunRead, verdict: ProfileVerdict) -> tuple[str, ...]:
    core = f"{verdict.word} {len(verdict.passed)}/{verdict.total}"
    day = document.date.partition("T")[0] or "before results had dates"
    return (run.subject, run.name or run.mode, _version(run), day, core)


def _version(run: RunRead) -> str:
    return (run.environment.get("subject") or "").partition("\n")[0]
