"""The reported bugs that cases look for: docs/spec/regressions.md, written by `tools.docgen`."""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.conformance.cases import CATALOGUE
from kproxy.spec.regressions import REGRESSIONS, Regression, RegressionScope
from tools.docgen import tables


def page() -> str:
    """The page."""
    own = [r for r in REGRESSIONS.values() if r.shows is not RegressionScope.ELSEWHERE]
    held = [r for r in own if cases_for(r)]
    return f"""\
<!-- Generated: edit src/kproxy/spec/regressions.toml or src/kproxy/conformance/cases/, then run `{tables.COMMAND}`. -->

# Reported bugs

{len(REGRESSIONS)} bugs of service proxies, as their users reported them. Of the {len(own)} that network namespaces can show, cases check {len(held)}.
`kproxy conformance list --regression 139628` names the cases of a report, by the number of its issue or by its id here.

{tables.markdown_table("", ("id", "reported", "of", "what happened", "cases, or why none"), _rows()).lstrip()}
"""


def cases_for(regression: Regression) -> list[str]:
    """The cases that name a report."""
    return [case.id for case in CATALOGUE if regression.id in case.regressions]


def _rows() -> Iterator[tuple[str, ...]]:
    for regression in REGRESSIONS.values():
        links = ", ".join(f"[{name}]({link})" for name, link in regression.links)
        held = ", ".join(f"`{id}`" for id in cases_for(regression))
        yield regression.id, links, regression.proxy, regression.what, held or regression.reason
