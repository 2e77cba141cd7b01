"""A hook of mkdocs: pages that stand outside of docs/, and links that leave it.

``mkdocs.yml`` names it.  Pages of `OUTSIDE` become pages of the site; a link to another file of the repository keeps its text only,
since the site has no such page.  Only mkdocs calls the two functions ``on_*``, so mkdocs is imported there alone.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
OUTSIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "tests/README.md": "tests.md",
    "CHANGELOG.md": "changes.md",
    "README.md": "index.md",
}
"""Files of the repository as pages of the site; the first page is written for the site."""

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that stand outside of docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - in the session `docs` only

    for path, page in OUTSIDE.items():
        if page != "index.md":
            text = (ROOT / path).read_text(encoding="utf-8")
            files.append(File.generated(config, page, content=with_site_links(text, path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Changes the links of a page of docs/."""
    if page.file.src_uri in OUTSIDE.values() and page.file.src_uri != "index.md":
        return markdown
    return with_site_links(markdown, f"docs/{page.file.src_uri}")


def with_site_links(text: str, path: str) -> str:
    """The text of the file at ``path`` in the repository, with links between pages of the site."""
    here = _place(path)

    def link(found: re.Match[str]) -> str:
        label, target, anchor = found[1], found[2], found[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        page = _place(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))
        if page is None or not _is_file_of_the_site(page):
            return label
        return f"[{label}]({posixpath.relpath(page, posixpath.dirname(here or '') or '.')}{anchor})"

    return _LINK.sub(link, text)


def _place(path: str) -> str | None:
    """Where a file of the repository stands in the site; None where it does not."""
    return OUTSIDE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)


def _is_file_of_the_site(page: str) -> bool:
    return page in OUTSIDE.values() or (ROOT / "docs" / page).is_file()
