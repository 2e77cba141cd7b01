"""Rooms end soon, and leave no dead process to the machine's first one, which may be slow to notice."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kproxy.lab.namespaces import create_namespace
from kproxy.lab.processes import Process, spawn
from kproxy.lab.sandbox import open_sandbox

SUBJECTS = {
    "is alone": "exec sleep 1000",
    "has children": "sleep 1000 & exec sleep 1000",
    "has children of its own session": "setsid sleep 1000 & exec sleep 1000",
    "stands still": "kill -STOP $$; exec sleep 1000",
}
SOON = 5.0
"""Seconds, for a busy machine; a room that waits for somebody else takes twice as long, and then is given up."""

_SUBREAPER = 36


@pytest.fixture
def orphans() -> Iterator[None]:
    """This process gets the orphans of what it starts, and never looks after them."""
    libc = ctypes.CDLL(None)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    yield
    libc.prctl(_SUBREAPER, 0, 0, 0, 0)


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split())


async def started(process: Process) -> None:
    while "up" not in process.log.read_text(encoding="ascii"):
        assert process.returncode is None
        await asyncio.sleep(0.01)


async def live_and_end(does: str, folder: Path, *, once_started: bool) -> float:
    """A subject in a room, from its start to the end of both; the seconds that the end took."""
    with closing(create_namespace("room")) as namespace:
        room = await open_sandbox(namespace, folder, {})
        process = spawn(room.command(["sh", "-c", f"echo up; {does}"]), namespace, log=folder / "log")
        if once_started:
            await started(process)
        begun = time.monotonic()
        await room.end([process])
        await room.close()
        return time.monotonic() - begun


@pytest.mark.usefixtures("orphans")
@pytest.mark.parametrize("does", SUBJECTS.values(), ids=SUBJECTS)
@pytest.mark.parametrize("when", ["once it has started", "on its way in"])
def test_a_sandbox_ends_soon_and_no_process_is_left(does: str, when: str, tmp_path: Path) -> None:
    before = children()
    took = asyncio.run(live_and_end(does, tmp_path, once_started=when == "once it has started"))
    assert took < SOON
    assert children() <= before
