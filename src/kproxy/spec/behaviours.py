"""Behaviours of service proxies as they were observed or read; clauses sum them up.

The behaviours are data in ``behaviours.toml`` beside this file, in a table for each topic.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

_REASONS = ("tests", "inside", "open")


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """One behaviour.

    ``modes``: of kube-proxy, in which it is so; ``observed``: false where it was only read from code;
    ``cases``: those that show it, if its clauses alone would name too many.  Why no case shows it is one of
    ``tests`` (the test of kproxy's own that does), ``inside`` (not visible from outside) and ``open``; empty
    where it does not apply.
    """

    id: str
    topic: str
    modes: str
    what: str
    observed: bool
    cases: tuple[str, ...]
    tests: str
    inside: str
    open: str


def _behaviour(topic: str, id: str, row: Mapping[str, Any]) -> Behaviour:
    return Behaviour(
        id=id,
        topic=topic,
        modes=row["modes"],
        what=row["what"],
        observed=row.get("seen", True),
        cases=tuple(row.get("cases", ())),
        **{reason: row.get(reason, "") for reason in _REASONS},
    )


def _load() -> Iterator[Behaviour]:
    text = resources.files(__package__).joinpath("behaviours.toml").read_text(encoding="utf-8")
    for topic, table in tomllib.loads(text).items():
        for id, row in table.items():
            yield _behaviour(topic, id, row)


BEHAVIOURS: Mapping[str, Behaviour] = MappingProxyType({behaviour.id: behaviour for behaviour in _load()})
"""Every behaviour by its ID."""
