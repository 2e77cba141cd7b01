"""The control of waits ends at once, whatever it is doing when the wait is over."""

import asyncio

import pytest

from kproxy.conformance.testbeds import lag as module
from kproxy.conformance.testbeds.lag import lag


@pytest.mark.parametrize("turns", range(8))
def test_an_interrupted_loop_ends_also_while_the_work_is_being_started(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its end a loop cancels every task there is: asyncio's own that connects a new process too, and waits for all."""
    monkeypatch.setattr(module, "LONG", 0.0)

    async def interrupted() -> None:
        beginning = lag()
        await beginning.__aenter__()
        for _ in range(turns):
            await asyncio.sleep(0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interrupted())


def test_its_work_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONG", 0.0)

    async def measured() -> module.Lag:
        async with lag() as found:
            for _ in range(1000):
                await asyncio.sleep(0.01)
                if found.works:
                    break
            return found

    found = asyncio.run(measured())
    assert found.worked > 0
    assert found.slowness >= 1
