"""docs/evidence.md: the tests behind each row of the pages for users, from ``evidence.toml`` beside this file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from kproxy.spec.behaviours import BEHAVIOURS
from tools.docgen.tables import COMMAND, markdown_table

Evidence = Mapping[str, Mapping[str, Sequence[str]]]
"""Of each page of docs/, of each row by its first cell: tests, as ``PATH::NAME``."""

SOURCE = Path(__file__).with_name("evidence.toml")
DOCS = Path(__file__).parents[2] / "docs"

_HEAD = f"""\
<!-- Generated: edit tools/docgen/evidence.toml, then run `{COMMAND}`. -->

# Evidence

The tests behind each row of the pages on the daemon. The rows of packets are held by cases: [coverage](spec/coverage.md)."""


def load_evidence() -> Evidence:
    """The content of ``evidence.toml``."""
    return tomllib.loads(SOURCE.read_text(encoding="utf-8"))


def page() -> str:
    """The whole page."""
    return "\n\n".join([_HEAD, *(_section(name, rows) for name, rows in load_evidence().items())]) + "\n"


def _section(name: str, rows: Mapping[str, Sequence[str]]) -> str:
    title = re.match(r"# (.+)", (DOCS / name).read_text(encoding="utf-8"))
    heading = f"## {name}\n\n[{title[1] if title else name}]({name})"
    cells = ((_row(key), "<br>".join(f"`{test}`" for test in tests)) for key, tests in rows.items())
    return markdown_table(heading, ("Row", "Tests"), cells)


def _row(key: str) -> str:
    behaviour = BEHAVIOURS.get(key)
    return f"`{key}`: {behaviour.what}" if behaviour else key
