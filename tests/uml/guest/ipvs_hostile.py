"""Hostile objects in ipvs mode, where a kernel has it.  `tests/uml/test_ipvs.py` runs this in a guest."""

from __future__ import annotations

import asyncio

from tests.support.hostile_flood import flood


def test_a_good_service_is_served_meanwhile_and_every_refused_object_is_named() -> None:
    asyncio.run(flood("ipvs"))
