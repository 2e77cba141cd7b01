"""Tables of options in the documentation, from the one that argparse and pytest are made of.

A page holds ``<!-- options of COMMAND: begin ... -->`` and ``<!-- options: end -->``; what is between is written here.
``COMMAND but OTHER``: options that the other command has too are one last row.
"""

from __future__ import annotations

import re
from pathlib import Path

from kproxy.options.option import OptionUser
from kproxy.options.table import options_of
from tools.docgen.tables import markdown_table

DOCS = Path(__file__).parents[2] / "docs"
REGION = re.compile(
    r"(<!-- options of ([a-z ]+?)(?: but ([a-z ]+))?: begin[^\n]*-->\n).*?(<!-- options: end -->)", re.DOTALL
)


def refresh_options(page: str, path: Path) -> str:
    """The text of a page with its tables of options as they are now."""
    return REGION.sub(lambda found: f"{found[1]}\n{_table(found[2], found[3], path)}\n\n{found[4]}", page)


def _table(command: str, other: str | None, path: Path) -> str:
    options = options_of(_user(command))
    shared = [option for option in options if other and _user(other) in option.users]
    rows = [(_code(option.usage), _here(option.markdown, path)) for option in options if option not in shared]
    if shared:
        rows.append((", ".join(_code(option.name) for option in shared), f"as of `{other}`"))
    return markdown_table("", ("option", "meaning"), rows).lstrip()


def _user(command: str) -> OptionUser:
    return OptionUser[command.upper().replace(" ", "_")]


def _code(text: str) -> str:
    return f"`{text}`"


def _here(markdown: str, path: Path) -> str:
    """The same with links from this page, not from ``docs/``."""
    above = "../" * (len(path.relative_to(DOCS).parts) - 1)
    return re.sub(r"\]\((?!https?:)", rf"]({above}", markdown)
