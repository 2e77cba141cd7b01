"""Shared by the generated pages: Markdown tables, names of links, generated parts of written pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

COMMAND = "python -m tools.docgen"

LABELS = (
    (r"github\.com/kubernetes/kubernetes/issues/(\d+)", r"issue \1"),
    (r"github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)", r"\1 \2"),
    (r"github\.com/kubernetes/community/blob/[^/]+/sig-scalability/slos/(\w+)\.md", r"SLO: \1"),
    (r"github\.com/torvalds/linux/blob/[^/]+/(.*)", r"Linux, \1"),
    (r"github\.com/kubernetes/enhancements/.*/0*(\d+)-[^/]+", r"KEP-\1"),
    (r"github\.com/kubernetes/kubernetes/blob/[^/]+/test/e2e/network/(\w+)\.go", r"e2e: \1"),
    (r"github\.com/kubernetes/kubernetes/blob/[^/]+/pkg/proxy/([\w/]+)_test\.go", r"unit test: \1"),
    (r"github\.com/kubernetes/kubernetes/blob/[^/]+/pkg/proxy/([\w/]+)\.go", r"kube-proxy: \1"),
    (r"github\.com/kubernetes/kubernetes/blob/[^/]+/cmd/([\w/-]+)\.go", r"\1"),
    (r"kubernetes\.io/docs/(?:.*/)?([^/#]+)/?(#[\w-]+)?", r"docs: \1\2"),
)
"""Patterns of addresses, and the labels of links to them."""


def link_label(link: str) -> str:
    """Label of a link.  Raises `LookupError` for an address that fits no pattern of `LABELS`."""
    for pattern, name in LABELS:
        if found := re.fullmatch(f"https://{pattern}", link):
            return found.expand(name)
    raise LookupError(f"tools/docgen/tables.py: give links like {link} a name in LABELS")


def markdown_table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A heading with a table below."""
    lines = [columns, ["---"] * len(columns), *rows]
    cells = ("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"{heading}\n\n" + "\n".join(cells)


def replace_region(text: str, name: str, content: str) -> str:
    """The text with ``content`` between the comments ``NAME: begin`` and ``NAME: end``.  Raises `LookupError` where they are not."""
    region = re.compile(rf"(<!-- {name}: begin[^\n]*-->\n).*(<!-- {name}: end -->)", re.DOTALL)
    if not region.search(text):
        raise LookupError(f"no comments <!-- {name}: begin --> and <!-- {name}: end -->")
    return region.sub(lambda found: f"{found[1]}\n{content}\n\n{found[2]}", text)
