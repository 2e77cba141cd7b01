"""The other program of a universe: its rules are seen to be there, and to be gone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kproxy.lab.processes import Xtables, run_in, xtables_directory
from kproxy.model.network import Family
from kproxy.universes.other_program import OtherProgram

if TYPE_CHECKING:
    from tests.netns.conftest import Bench


@pytest.mark.parametrize("family", Family)
def test_rules_of_another_program_are_missed_when_they_are_flushed(
    bench: Bench, tmp_path: Path, family: Family
) -> None:
    other = OtherProgram(bench.lab.network, xtables_directory(tmp_path, Xtables.NFT), family)
    tool = str(tmp_path / ("iptables" if family is Family.IPV4 else "ip6tables"))

    async def lost_before_and_after() -> tuple[str, str]:
        await other.install("a")
        reloading = asyncio.create_task(other.reload_again_and_again("a", 0.01))
        await asyncio.sleep(0.1)
        reloading.cancel()
        await asyncio.wait([reloading])
        before = await other.lost_rules("a")
        await run_in(bench.lab.network["a"], [tool, "-t", "nat", "-F", "POSTROUTING"])
        return before, await other.lost_rules("a")

    assert bench.run(lost_before_and_after()) == ("", "nat: -A POSTROUTING -j OTHER-PROGRAM")
