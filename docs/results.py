"""The page that puts the kept results of real proxies beside one another."""

from pathlib import Path

from kproxy.conformance.reports import markdown
from kproxy.conformance.reports.comparison import compare
from kproxy.conformance.reports.reading import load

FOLDER = Path(__file__).parent / "results"

_HEAD = """\
<!-- Generated: edit docs/results/*.json, then run `python -m docs.generate`. -->

# Results side by side

[What they are and how to repeat them](README.md).
"""


def page() -> str:
    """The page."""
    documents = load([str(file) for file in sorted(FOLDER.glob("*.json"))])
    return f"{_HEAD}\n{markdown.render(compare(documents)).rstrip()}\n"
