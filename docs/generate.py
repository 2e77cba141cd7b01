"""Write docs/catalogue.md from the cases and clauses of the package; with ``--check`` only say whether it is stale.

Run from the repository's root: ``python -m docs.generate``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kproxy.conformance.case import DEFAULT, Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.spec.clause import Clause
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.outcome import ClauseId

PAGE = Path(__file__).with_name("catalogue.md")
COMMAND = "python -m docs.generate"
CLAUSES_OF = "Clauses on"

Entry = TypeVar("Entry", Case, Clause)

LABELS = (
    (r"github\.com/kubernetes/kubernetes/issues/(\d+)", r"issue \1"),
    (r"github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)", r"\1 \2"),
    (r"github\.com/kubernetes/enhancements/.*/0*(\d+)-[^/]+", r"KEP-\1"),
    (r"github\.com/kubernetes/kubernetes/blob/[^/]+/test/e2e/network/(\w+)\.go", r"e2e: \1"),
    (r"github\.com/kubernetes/kubernetes/blob/[^/]+/pkg/proxy/([\w/]+)_test\.go", r"unit test: \1"),
    (r"kubernetes\.io/docs/(?:.*/)?([^/#]+)/?(#[\w-]+)?", r"docs: \1\2"),
)
"""How a link is called, by its address."""


EXPLANATION = """\
Levels are those of RFC 2119. *Cases* counts the cases that name the clause; with 0 it cannot be shown by packets of the lab, or is
not yet. Sources are where the promise is written down, tested or was observed; *since* is a version of Kubernetes.\
"""


def page(cases: Sequence[Case], clauses: Mapping[ClauseId, Clause]) -> str:
    """The whole page."""
    asked = Counter(clause for case in cases for clause in case.clauses)
    parts = [_head(cases, clauses)]
    for group, members in _grouped(cases).items():
        parts.append(_table(f"## {group}", ("case", "about", "clauses"), map(_case, members)))
    parts.append(f"# Clauses\n\n{EXPLANATION}")
    for area, found in _grouped(clauses.values()).items():
        rows = (_clause(clause, asked[clause.id]) for clause in found)
        columns = ("clause", "level", "what", "sources", "cases")
        parts.append(_table(f"## {CLAUSES_OF} {area}", columns, rows))
    return "\n\n".join(parts) + "\n"


def _head(cases: Sequence[Case], clauses: Mapping[ClauseId, Clause]) -> str:
    return f"""\
<!-- Generated: edit src/kproxy/conformance/cases/ or src/kproxy/spec/catalogue/, then run `{COMMAND}`. -->

# Catalogue

{len(cases)} cases hold a proxy to {len(clauses)} clauses. `kproxy conformance list` prints the cases, with `--json -` for programs;
[judging a service proxy](conformance.md) says how to run them.

Cases: {_contents(cases)}.

Clauses: {_contents(clauses.values(), CLAUSES_OF)}."""


def _grouped(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Entries by the first word of their IDs, in order of appearance."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.id.partition(".")[0], []).append(entry)
    return groups


def _contents(entries: Iterable[Entry], prefix: str = "") -> str:
    anchor = f"{prefix} ".lstrip().lower().replace(" ", "-")
    return ", ".join(f"[{name}](#{anchor}{name}) {len(found)}" for name, found in _grouped(entries).items())


def _table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    cells = ("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"{heading}\n\n" + "\n".join(cells)


def _case(case: Case) -> tuple[str, ...]:
    remarks = [f"profile {case.profile.name}"] if case.profile != DEFAULT else []
    remarks += ["slow"] if case.slow else []
    about = f"{case.about} *({', '.join(remarks)})*" if remarks else case.about
    return f"`{case.id}`", about, ", ".join(f"[{clause}](#{clause})" for clause in sorted(case.clauses))


def _clause(clause: Clause, cases: int) -> tuple[str, ...]:
    since = f" *(since {clause.since})*" if clause.since else ""
    sources = ", ".join(f"[{label(link)}]({link})" for link in clause.source)
    return (
        f'<a name="{clause.id}"></a>`{clause.id}`',
        clause.level.value,
        clause.text + since,
        sources,
        str(cases),
    )


def label(link: str) -> str:
    """What to call a link.  Raises `LookupError` for one of a kind that has no name yet."""
    for pattern, name in LABELS:
        if found := re.fullmatch(f"https://{pattern}", link):
            return found.expand(name)
    raise LookupError(f"docs/generate.py: give links like {link} a name in LABELS")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or with ``--check`` return 1 when it is stale."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 when the page is stale")
    check = parser.parse_args(arguments).check
    text = page(CATALOGUE, CLAUSES)
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    if check:
        print(f"docs/catalogue.md is stale: run `{COMMAND}`", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
