"""Clients that connect continuously while objects change, each connection judged by itself.

Part of the runner; of a testbed it uses `probe` only.
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
"""Pause between two connections of a client, in seconds."""


@dataclass(slots=True)
class ContinuousClient:
    """Client and its observations; ``harness_error``: reason why it could not go on."""

    instance: Instance
    step: ContinuousProbe
    seen: list[Observation] = field(default_factory=list)
    harness_error: str = ""
    stopped: bool = False

    async def run(self, testbed: Testbed) -> None:
        """Connect until stopped, and once at least."""
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
    """Text of a failed observation: a `HarnessError`'s own, or that of a failing lab or socket with ``what`` in front."""
    return str(reason) if isinstance(reason, HarnessError) else f"{what}: {reason}"


def as_probe(step: Probe | ContinuousProbe) -> Probe:
    """Probe for one connection; for a `ContinuousProbe` the reply must be to the first packet, without a retransmission."""
    if isinstance(step, Probe):
        return step
    return Probe(sender=step.sender, to=step.to, expect=step.expect, first_packet_only=True)


@asynccontextmanager
async def probing(testbed: Testbed, clients: Sequence[ContinuousClient]) -> AsyncIterator[None]:
    """Run these clients for the length of the context."""
    tasks = [asyncio.create_task(client.run(testbed)) for client in clients]
    try:
        yield
    finally:
        for client in clients:
            client.stopped = True
        await asyncio.gather(*tasks)
