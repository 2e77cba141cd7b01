"""Fixtures for tests on the real kernel: a lab of the test's own, and a loop to run it in.

A missing prerequisite fails, with what to do about it: a skipped packet test proves nothing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from kproxy.lab.lab import Lab, open_lab
from kproxy.lab.probes.observation import Observation, ProbeRequest

T = TypeVar("T")

TOOLS = {
    "ip": "iproute2",
    "nft": "nftables",
    "iptables": "iptables",
    "ip6tables": "iptables",
    "setpriv": "util-linux",
}


class Bench:
    """A running lab and the event loop it lives in, for tests that are ordinary functions."""

    def __init__(self, runner: asyncio.Runner, lab: Lab) -> None:
        self.runner, self.lab = runner, lab

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(doing)

    def probe(self, *requests: ProbeRequest) -> list[Observation]:
        """Send these probes at once; what came of each."""

        async def all_of_them() -> list[Observation]:
            return await asyncio.gather(*map(self.lab.probe, requests))

        return self.run(all_of_them())


@pytest.fixture(scope="session", autouse=True)
def prerequisites() -> None:
    if os.geteuid() != 0:
        pytest.fail("tests/netns needs root for network namespaces: run `sudo python -m pytest tests/netns`")
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if missing:
        pytest.fail(f"tests/netns needs more packages: apt-get install {' '.join(missing)}")


def _bench() -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        opening = open_lab()
        lab = runner.run(opening.__aenter__())
        try:
            yield Bench(runner, lab)
        finally:
            runner.run(opening.__aexit__(None, None, None))


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A lab for this test alone."""
    yield from _bench()


@pytest.fixture(scope="module")
def shared_bench() -> Iterator[Bench]:
    """A lab for a module whose tests leave it as they found it."""
    yield from _bench()
