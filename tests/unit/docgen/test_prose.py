"""Written pages speak the field's language: send, query, observe, report; a program, a client, a user.

Generated pages have the text of their sources; decisions and findings are records and stay as they were written.
"""

import re
from pathlib import Path

import pytest

from kproxy.spec.behaviours import BEHAVIOURS
from tests.support.paths import ROOT

FORBIDDEN = re.compile(
    r"\b(asked|asks|told|tells|heard|hears|heeds|whoever|whomever|nobody|somebody|amid|befalls)\b",
    re.IGNORECASE,
)
GENERATED = {"catalogue.md", "where-cases-run.md", "evidence.md", "decisions.md", "daemon-faults.md"}
WRITTEN = sorted(
    [
        *(
            ROOT / name
            for name in ("README.md", "tests/README.md", "docs/spec/explain.md", "docs/results/README.md")
        ),
        *(path for path in (ROOT / "docs").glob("*.md") if path.name not in GENERATED),
        *(ROOT / "docs/tutorials").glob("*.md"),
        ROOT / "docs/backends/iptables.md",
    ]
)


def prose(path: Path) -> str:
    """The page without code, output and the sentences of behaviours."""
    text = path.read_text(encoding="utf-8")
    for behaviour in BEHAVIOURS.values():
        text = text.replace(behaviour.what.replace("|", "\\|"), "")
    return re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_written_page_speaks_the_fields_language(path: Path) -> None:
    found = [line for line in prose(path).splitlines() if FORBIDDEN.search(line)]
    assert not found, "send, query, observe, report, return; a program, a client, a user"
