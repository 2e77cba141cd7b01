"""Silence where a rejection is expected, on nodes that limit ICMP errors.

A kernel sends one ICMP error a second to a peer by default (`icmp_ratelimit`, `ipv6.icmp.ratelimit`: 1000 ms,
https://docs.kernel.org/networking/ip-sysctl.html), and cases send many probes to it at once. In a lab the limits are off; a
cluster's nodes are not ours to change. So what expects a rejection is sent in turns of each sender, one at a time, and what got
silence in its place is sent again after the limit's time: a proxy that drops is silent each time, one that rejects is not. Only silence that the node itself made is in
question: a packet that went on is no rejection that was left out.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace

from kproxy.conformance.case import Lawful
from kproxy.conformance.testbed import Observation
from kproxy.spec.outcome import Failure

REPEATS = 3
"""Number of times that such a probe is sent again before silence is believed."""
PAUSE = 1.1
"""Seconds before each: longer than the kernel's limit."""
PATIENCE = 1.0
"""Seconds to wait for a reply to one that is sent again: a rejection comes at once."""
Send = Callable[[], Awaitable[Observation]]
"""Sends once, alone."""
_SILENCE = frozenset({Failure.DROPPED})


class RejectionPacer:
    """Sends what expects a rejection one at a time, and again where the limit alone may have been silent.

    The limit is one of each peer that would get an error, so each sender has its own turn.
    """

    def __init__(self, pause: float = PAUSE) -> None:
        self._pause = pause
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def send(self, sender: str, expect: Lawful, send: Send) -> Observation:
        """Observation of one probe in the sender's turn, sent again while its silence is in doubt."""
        async with self._turns[sender]:
            seen = await send()
            return await self._repeated(seen, expect, send)

    async def judge(self, sender: str, seen: Observation, expect: Lawful, repeat: Send) -> Observation:
        """Observation of what was sent already, or that of a repetition in the sender's turn."""
        if not _is_doubtful(seen, expect):
            return seen
        async with self._turns[sender]:
            return await self._repeated(seen, expect, repeat)

    async def _repeated(self, seen: Observation, expect: Lawful, repeat: Send) -> Observation:
        if not _is_doubtful(seen, expect):
            return seen
        for number in range(1, REPEATS + 1):
            await asyncio.sleep(self._pause)
            again = await repeat()
            if not _is_doubtful(again, expect):
                text = f"{again.text} (sent again alone, {number} of {REPEATS}: nodes limit ICMP errors)"
                return replace(again, text=text)
        return replace(seen, text=f"{seen.text} (also when sent again alone, {REPEATS} times)")


def expects_rejection(expect: Lawful) -> bool:
    """True where a rejection is lawful and silence is not."""
    return Failure.REJECTED in expect and Failure.DROPPED not in expect


def _is_doubtful(seen: Observation, expect: Lawful) -> bool:
    """True for silence where a rejection would be lawful and silence would not."""
    return seen.outcomes == _SILENCE and expects_rejection(expect)
