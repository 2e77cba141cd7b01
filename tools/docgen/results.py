"""The page that puts the kept results of real proxies beside one another."""

from pathlib import Path

from kproxy.conformance.reports import markdown
from kproxy.conformance.reports.comparison import compare_runs
from kproxy.conformance.reports.results_reader import load_results

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
    return f"{_HEAD}\n{without_failures.rstrip()}\n\n{differences}{rest.rstrip()}\n"
