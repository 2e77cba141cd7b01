"""Clients that never pause while objects change: one new connection after another, each judged by itself.

Part of the runner; knows of a testbed no more than that it can be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import ContinuousProbe, Probe
from kproxy.conformance.testbed import HarnessError, Observation, Testbed
from kproxy.lab.namespaces import LabError

PAUSE = 0.02
"""Seconds between two connections of a client."""


@dataclass(slots=True)
class ContinuousClient:
    """Who asks, and all that was seen; ``harness_error``: why nothing more could be."""

    instance: Instance
    step: ContinuousProbe
    seen: list[Observation] = field(default_factory=list)
    harness_error: str = ""
    stopped: bool = False

    async def run(self, testbed: Testbed) -> None:
        """Ask until it is enough, and once at least."""
        probe = as_probe(self.step)
        try:
            while True:
                self.seen += await testbed.probe(self.instance, probe, 1)
                if self.stopped:
                    return
                await asyncio.sleep(PAUSE)
        except (HarnessError, LabError, OSError) as reason:
            self.harness_error = describe_unobserved(
                reason, f"a steady client, {self.step.sender} -> {self.step.to.service}"
            )


def describe_unobserved(reason: HarnessError | LabError | OSError, what: str) -> str:
    """Why one thing could not be observed; a testbed says so itself, of a failing lab or socket ``what`` names it."""
    return str(reason) if isinstance(reason, HarnessError) else f"{what}: {reason}"


def as_probe(step: Probe | ContinuousProbe) -> Probe:
    """What is asked: one connection of a steady client, whose first packet must not need to be sent again."""
    if isinstance(step, Probe):
        return step
    return Probe(sender=step.sender, to=step.to, expect=step.expect, first_packet_only=True)


@asynccontextmanager
async def probing(testbed: Testbed, clients: Sequence[ContinuousClient]) -> AsyncIterator[None]:
    """Let these clients ask while the block lasts."""
    tasks = [asyncio.create_task(client.run(testbed)) for client in clients]
    try:
        yield
    finally:
        for client in clients:
            client.stopped = True
        await asyncio.gather(*tasks)
