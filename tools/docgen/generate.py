"""Write the generated pages from the cases and clauses of the package; with ``--check`` only report which are stale.

Run from the repository's root: ``python -m tools.docgen``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from kproxy.conformance.case import DEFAULT, Case
from kproxy.conformance.cases import CATALOGUE
from kproxy.spec.clause import Clause
from kproxy.spec.clauses import CLAUSES
from kproxy.spec.outcome import ClauseId
from kproxy.spec.topics import TOPICS
from tools.docgen import (
    architecture,
    coverage,
    dashboard,
    decisions,
    evidence,
    iptables_rules,
    options,
    regressions,
    results,
    samples,
    shells,
    topics,
    upstream_tests,
    where_cases_run,
)
from tools.docgen.tables import COMMAND, link_label, markdown_table

CLAUSES_OF = "Clauses on"

Entry = TypeVar("Entry", Case, Clause)

EXPLANATION = """\
Levels are those of RFC 2119. *Cases* counts the cases that name the clause; with 0 it cannot be shown by packets of the lab, or is
not yet. Sources are where the promise is written down, tested or was observed; *since* is a version of Kubernetes.\
"""


def catalogue_page(cases: Sequence[Case], clauses: Mapping[ClauseId, Clause]) -> str:
    """The whole page."""
    citations = Counter(clause for case in cases for clause in case.clauses)
    parts = [_head(cases, clauses)]
    for group, members in _grouped(cases).items():
        parts.append(markdown_table(f"## {group}", ("case", "about", "clauses"), map(_case, members)))
    parts.append(f"# Clauses\n\n{EXPLANATION}")
    for area, found in _grouped(clauses.values()).items():
        rows = (_clause(clause, citations[clause.id]) for clause in found)
        columns = ("clause", "level", "what", "sources", "cases")
        parts.append(markdown_table(f"## {CLAUSES_OF} {area}", columns, rows))
    return "\n\n".join(parts) + "\n"


def _head(cases: Sequence[Case], clauses: Mapping[ClauseId, Clause]) -> str:
    return f"""\
<!-- Generated: edit src/kproxy/conformance/cases/ or src/kproxy/spec/clauses/, then run `{COMMAND}`. -->

# Catalogue

{len(cases)} cases check a proxy against {len(clauses)} clauses. `kproxy conformance list` prints the cases, with `-o json` for programs;
[judging a service proxy](conformance.md) describes how to run them.

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


def _case(case: Case) -> tuple[str, ...]:
    remarks = [f"profile {case.profile.name}"] if case.profile != DEFAULT else []
    remarks += ["slow"] if case.slow else []
    about = f"{case.about} *({', '.join(remarks)})*" if remarks else case.about
    return f"`{case.id}`", about, ", ".join(f"[{clause}](#{clause})" for clause in sorted(case.clauses))


def _clause(clause: Clause, cases: int) -> tuple[str, ...]:
    since = f" *(since {clause.since})*" if clause.since else ""
    sources = ", ".join(f"[{link_label(link)}]({link})" for link in clause.source)
    return (
        f'<a name="{clause.id}"></a>`{clause.id}`',
        clause.level.value,
        clause.text + since,
        sources,
        str(cases),
    )


def _with_options(path: Path) -> str:
    """A page by hand with its tables of options as they are now."""
    return options.refresh_options(path.read_text(encoding="utf-8"), path)


def _with_samples(path: Path) -> str:
    """The same with its samples run again."""
    return options.refresh_options(samples.refresh_samples(path), path)


DOCS = Path(__file__).parents[2] / "docs"
OPTION_PAGES = ("conformance", "kind", "lab", "local-cluster", "reports", "simulate")
SAMPLE_PAGES = ("spec/explain", "trace")
PAGES: dict[Path, Callable[[], str]] = {
    DOCS / "catalogue.md": lambda: catalogue_page(CATALOGUE, CLAUSES),
    DOCS / "where-cases-run.md": where_cases_run.page,
    DOCS / "spec/coverage.md": coverage.page,
    DOCS / "spec/coverage.json": coverage.coverage_json,
    DOCS / "spec/regressions.md": regressions.page,
    DOCS / "evidence.md": evidence.page,
    DOCS / "results/comparison.md": results.page,
    DOCS / "results/versions/comparison.md": results.versions_page,
    DOCS / "results/e2e/tests.md": upstream_tests.page,
    DOCS / "backends/iptables.md": iptables_rules.page,
    DOCS / "decisions.md": decisions.page,
    DOCS / "design.md": architecture.page,
    **{DOCS / f"{name}.md": partial(_with_options, DOCS / f"{name}.md") for name in OPTION_PAGES},
    **{DOCS / f"{name}.md": partial(_with_samples, DOCS / f"{name}.md") for name in SAMPLE_PAGES},
    **shells.PAGES,
    dashboard.FILE: dashboard.dashboard,
    DOCS / "spec/topics/README.md": topics.index,
    **{DOCS / f"spec/topics/{topic}.md": partial(topics.page, topic) for topic in TOPICS},
}
"""The generated pages, each with the function that returns its text."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or with ``--check`` return 1 when one is stale."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 when a page is stale")
    check = parser.parse_args(arguments).check
    stale = {path: text for path, write in PAGES.items() if _read_page(path) != (text := write())}
    if check:
        for path in stale:
            print(f"{path.relative_to(DOCS.parent)} is stale: run `{COMMAND}`", file=sys.stderr)
        return 1 if stale else 0
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")
    return 0


def _read_page(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
