"""The faults that a service proxy must live through, with traffic flowing: `tests.faults` lists them, and what must hold.

Those that last, or need a kernel of their own, run by ``./run faults``, which writes docs/daemon-faults.md too.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.fault import Row, judge
from tests.faults.table import ROWS

SHORT = [row for row in ROWS if row.at_home and row.short]


@pytest.mark.parametrize("row", SHORT, ids=str)
def test_nothing_is_lost_and_health_is_right(row: Row) -> None:
    print(asyncio.run(judge(row)))
