"""docs/decisions.md: the architecture decision records by number, with the status of those whose text is older than the code."""

from __future__ import annotations

import re
from pathlib import Path

from tools.docgen.tables import COMMAND, markdown_table

FOLDER = Path(__file__).parents[2] / "docs/adr"


def page() -> str:
    """The whole page."""
    rows = (_row(path) for path in sorted(FOLDER.glob("*.md")))
    heading = f"<!-- Generated: edit docs/adr/, then run `{COMMAND}`. -->\n\n# Decisions\n\nWhy the code is as it is, one record for each decision."
    return markdown_table(heading, ("", "Decision", "Status"), rows) + "\n"


def _row(path: Path) -> tuple[str, str, str]:
    text = path.read_text(encoding="utf-8")
    title = re.match(r"# (\d+)\. (.+)", text)
    if title is None:
        raise LookupError(f"{path}: the first line is to be `# NUMBER. TITLE`")
    above = text[title.end() :].partition("\n## ")[0].strip().removeprefix("Status: ")
    status = re.sub(r"\]\((\d)", r"](adr/\1", above[:1].upper() + above[1:])
    return title[1], f"[{title[2]}](adr/{path.name})", " ".join(status.split()) or "In force."
