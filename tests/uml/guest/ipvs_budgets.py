"""What the daemon may cost a node in ipvs mode.  `tests/uml/test_ipvs.py` runs this in a guest, which is too small for 10,000 Services."""

from __future__ import annotations

import asyncio

from tests.bench.world import Size
from tests.netns.test_budgets import MEGABYTE, peak_of


def test_the_daemon_takes_no_more_memory_than_it_may() -> None:
    assert asyncio.run(peak_of("ipvs", Size(100, 5))) < 80 * MEGABYTE
