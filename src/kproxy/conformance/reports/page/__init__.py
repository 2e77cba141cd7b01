"""Results as one HTML file: a matrix of runs and cases or clauses, and a page for each cell.

The file needs no network: it contains style, script and data.  Text goes into the page by the script as text, never
as HTML.  Pure.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping

import msgspec

from kproxy.conformance.reports.comparison import Comparison
from kproxy.conformance.reports.page.data import EvidenceFolder, page_data

__all__ = ["SHOWN_SUFFIX", "EvidenceFolder", "render_html"]

SHOWN_SUFFIX = ".counted.txt"
"""Suffix of the files of evidence whose text is shown in the page."""

_PARTS = ("page.css", "page.js")


def render_html(comparison: Comparison, evidence: Mapping[str, EvidenceFolder] | None = None) -> str:
    """The page; ``evidence``: the evidence folders that were found, by the names that results give them."""
    page = _asset("page.html")
    for name in _PARTS:
        page = page.replace(f"/*{name}*/", _asset(name))
    return page.replace("/*data*/", _embedded(page_data(comparison, evidence or {})))


def _asset(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text("utf-8")


def _embedded(data: object) -> str:
    """JSON that may stand in a script element: nothing in it can end the element."""
    text = msgspec.json.encode(data).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
