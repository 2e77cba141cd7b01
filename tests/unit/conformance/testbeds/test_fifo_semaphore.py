"""The gate that probes pass."""

import asyncio

from kproxy.conformance.testbeds.fifo_semaphore import FifoSemaphore


def test_no_more_are_inside_than_it_is_wide_and_all_come_in_in_order() -> None:
    inside: list[int] = []
    most: list[int] = []
    entered: list[int] = []

    async def pass_through(gate: FifoSemaphore, number: int) -> None:
        async with gate:
            inside.append(number)
            entered.append(number)
            most.append(len(inside))
            await asyncio.sleep(0)
            inside.remove(number)

    async def crowd() -> None:
        gate = FifoSemaphore(3)
        await asyncio.gather(*(pass_through(gate, number) for number in range(20)))

    asyncio.run(crowd())
    assert entered == list(range(20))
    assert max(most) == 3


def test_who_gives_up_takes_no_place_from_others() -> None:
    async def crowd() -> bool:
        gate = FifoSemaphore(1)
        await gate.__aenter__()
        waiting = [asyncio.ensure_future(gate.__aenter__()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await gate.__aexit__()
        waiting[1].cancel()  # its turn has come already
        await asyncio.wait(waiting, timeout=1)
        return waiting[2].done() and not waiting[2].cancelled()

    assert asyncio.run(crowd())
