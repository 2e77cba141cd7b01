"""Bugs that service proxies had, as users reported them; cases name those that they would catch.

The reports are data in ``regressions.toml`` beside this file.
"""

from __future__ import annotations

import enum
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from types import MappingProxyType
from typing import Any


class RegressionScope(enum.Enum):
    """Setting in which a bug can be observed."""

    NAMESPACES = "namespaces"
    """A lab of network namespaces."""
    STATISTICS = "statistics"
    """A lab of network namespaces, but at random or under load only."""
    ELSEWHERE = "elsewhere"
    """Another dataplane, or a whole cluster."""


@dataclass(frozen=True)
class Regression:
    """One reported bug.

    ``reports``: ``owner/repository#number``, the report first; ``also``: other names (a CVE);
    ``proxy``: the proxy that had it; ``uncovered``: why no case holds it, empty when one does.
    """

    id: str
    reports: tuple[str, ...]
    proxy: str
    what: str
    shows: RegressionScope
    also: tuple[str, ...] = ()
    uncovered: str = ""

    @cached_property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Name and URL of each report."""
        parts = (report.partition("#") for report in self.reports)
        return tuple(
            (f"{repo}#{number}", f"https://github.com/{repo}/issues/{number}") for repo, _, number in parts
        )

    @property
    def reason(self) -> str:
        """Why no case holds it; empty when one should."""
        other = "needs another dataplane or a whole cluster"
        return self.uncovered or (other if self.shows is RegressionScope.ELSEWHERE else "")

    def matches(self, name: str) -> bool:
        """True if ``name`` is its ID, its CVE, or a report's number with or without repository."""
        names = {self.id, *self.also, *self.reports, *(report.partition("#")[2] for report in self.reports)}
        short = {report.partition("/")[2] for report in self.reports}
        return re.sub(r"^#", "", name).casefold() in {known.casefold() for known in names | short}


def _read(id: str, table: Mapping[str, Any]) -> Regression:
    return Regression(
        id=id,
        reports=tuple(table["reports"]),
        proxy=table["proxy"],
        what=table["what"],
        shows=RegressionScope(table["shows"]),
        also=tuple(table.get("also", ())),
        uncovered=table.get("uncovered", ""),
    )


def _load() -> Mapping[str, Regression]:
    text = resources.files(__package__).joinpath("regressions.toml").read_text(encoding="utf-8")
    return MappingProxyType({id: _read(id, table) for id, table in tomllib.loads(text).items()})


REGRESSIONS = _load()
"""Every report by its id."""
