"""Where the lab finds the tools that it puts in front of PATH, and that it waits for what it started."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.processes import Xtables, run_in, xtables_directory

UNREADABLE = "/" + 300 * "x"
"""What nobody may look into; for root no permission does that."""


def test_a_folder_of_path_that_cannot_be_looked_into_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / Xtables.LEGACY.value
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((UNREADABLE, str(tmp_path))))
    links = xtables_directory(tmp_path / "links", Xtables.LEGACY)
    assert (links / "ip6tables-restore").resolve() == program


def test_a_variant_that_is_not_there_is_an_error_that_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kproxy.lab.processes._search_path", lambda: str(tmp_path))
    with pytest.raises(LabError, match="install the iptables package"):
        xtables_directory(tmp_path / "links", Xtables.NFT)


class Here:
    """Stands for a namespace: programs start where the test runs."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, argv: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
        self.started.append(subprocess.Popen(list(argv), **options))  # type: ignore[call-overload]
        return self.started[-1]


def test_a_program_is_waited_for_when_its_caller_is_cancelled_while_every_thread_is_busy() -> None:
    here, busy = Here(), threading.Event()

    async def cancelled() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
        first = loop.run_in_executor(None, busy.wait)
        running = asyncio.create_task(run_in(cast("Namespace", here), ["true"]))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        busy.set()
        await first

    asyncio.run(cancelled())
    assert [program.returncode for program in here.started] == [0]
