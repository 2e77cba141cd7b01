"""What the daemon may cost a node in ipvs mode.  `tests/uml/test_ipvs.py` runs this in a guest."""

from __future__ import annotations

import asyncio

import pytest

from tests.bench.world import Size
from tests.support.memory_budgets import MEMORY, peak_of


@pytest.mark.parametrize(("size", "most"), MEMORY, ids=[str(size) for size, _ in MEMORY])
def test_the_daemon_takes_no_more_memory_than_it_may(size: Size, most: int) -> None:
    assert asyncio.run(peak_of("ipvs", size)) < most
