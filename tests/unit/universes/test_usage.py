"""Growth of a proxy from the beginning of a universe to its end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kproxy.lab.processes import Usage
from kproxy.universes.play import MOST_GROWN, describe_growth

BEFORE = Usage(descriptors=20, threads=10, memory=40)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("descriptors", "has 37 descriptors open, 20 in the beginning"),
        ("threads", "has 27 threads, 10 in the beginning"),
        ("memory", "has 169 MiB of memory, 40 in the beginning"),
    ],
)
def test_each_may_grow_by_its_bound_and_no_more(field: str, text: str) -> None:
    bound = getattr(BEFORE, field) + getattr(MOST_GROWN, field)
    assert not describe_growth(BEFORE, replace(BEFORE, **{field: bound}))
    assert describe_growth(BEFORE, replace(BEFORE, **{field: bound + 1})) == text
