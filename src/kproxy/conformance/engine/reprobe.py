"""Reprobing: checks with an unlawful result are repeated while the objects are unchanged, to record evidence.

Nothing is judged. Checks run one at a time, so that captured packets and counters belong to one check, and within a
time budget per lab, since a subject may fail every case.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import CheckHealth, Open, Ping, Probe, Send, Step
from kproxy.conformance.testbed import Testbed

REPROBE_SECONDS = 15.0
"""Time budget of a lab, in seconds."""

ReprobableStep = Probe | Ping | CheckHealth | Send


class Reprober:
    """Reprobes of one lab."""

    def __init__(self, testbed: Testbed, seconds: float = REPROBE_SECONDS) -> None:
        self._testbed, self._left = testbed, seconds
        self._done: set[str] = set()

    async def reprobe(self, instance: Instance, broken_steps: Sequence[tuple[int, tuple[str, ...]]]) -> None:
        """Repeat the first of these steps that can be repeated, once for each instance, within the time budget.

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
    """Step to repeat without affecting later steps, or None: an `Open` is repeated as a `Probe`."""
    match step:
        case Probe() | Ping() | CheckHealth() | Send():
            return replace(step, clauses=clauses)
        case Open(sender=sender, to=to, expect=expect, from_port_of=from_port_of):
            return Probe(sender=sender, to=to, expect=expect, clauses=clauses, from_port_of=from_port_of)
        case _:
            return None
