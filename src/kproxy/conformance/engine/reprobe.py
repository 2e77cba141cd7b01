"""Questions that met something unlawful, asked once more while the objects are as they were.

It judges nothing: it is for the evidence.  One after the other, so that packets and counters are of this question alone;
for a limited time in each lab, since a subject may fail everything.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import CheckHealth, Open, Ping, Probe, Send, Step
from kproxy.conformance.testbed import Testbed

REPROBE_SECONDS = 15.0
"""That a lab spends on it."""

ReprobableStep = Probe | Ping | CheckHealth | Send


class Reprober:
    """What one lab has asked again."""

    def __init__(self, testbed: Testbed, seconds: float = REPROBE_SECONDS) -> None:
        self._testbed, self._left = testbed, seconds
        self._done: set[str] = set()

    async def reprobe(self, instance: Instance, broken_steps: Sequence[tuple[int, tuple[str, ...]]]) -> None:
        """Ask the first of these steps that can be asked again; only once for each instance, and while there is time.

        ``broken_steps``: numbers of steps, with the clauses that they broke.
        """
        steps = (_reprobable(instance.case.steps[number - 1], clauses) for number, clauses in broken_steps)
        step = next((step for step in steps if step is not None), None)
        if step is None or self._left <= 0 or instance.name in self._done:
            return
        self._done.add(instance.name)
        begun = time.monotonic()
        await self._testbed.reprobe(instance, step)
        self._left -= time.monotonic() - begun


def _reprobable(step: Step, clauses: tuple[str, ...]) -> ReprobableStep | None:
    """The step as a question that changes nothing for later ones: a flow to be held is asked for like any connection."""
    match step:
        case Probe() | Ping() | CheckHealth() | Send():
            return replace(step, clauses=clauses)
        case Open(sender=sender, to=to, expect=expect, from_port_of=from_port_of):
            return Probe(sender=sender, to=to, expect=expect, clauses=clauses, from_port_of=from_port_of)
        case _:
            return None
