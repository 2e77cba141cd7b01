"""Evidence of one lab: repeated checks with witnesses, and the end state of its nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.testbed import HarnessError, Observation
from kproxy.conformance.testbeds.disk_watch import read_tail
from kproxy.conformance.testbeds.evidence import state
from kproxy.conformance.testbeds.evidence.witnesses import LINGER, WITNESSES, Files
from kproxy.conformance.testbeds.proxies import Proxies
from kproxy.lab.lab import Lab
from kproxy.lab.namespaces import LabError

LARGEST_LOG_KEPT = 4 << 20
"""Bytes from the end of a log that go into evidence."""

Reprobe = Callable[[], Awaitable[Sequence[Observation]]]


class EvidenceCollector:
    """Evidence of failed checks: repeats each with witnesses attached, and keeps their files in memory.

    They are written once the report's folder is known.
    """

    def __init__(self, lab: Lab, proxies: Proxies) -> None:
        self._lab, self._proxies = lab, proxies
        self._seen: dict[str, Files] = {}
        self._end: Files = {}
        self._first = Path()

    async def reprobe(self, name: str, what: str, probe: Reprobe, decided: bytes = b"") -> None:
        """Repeat a check of that instance once, alone, with all witnesses; ``decided``: text of the rules that decide."""
        witnesses = [witness(self._lab, self._proxies.tools) for witness in WITNESSES]
        await asyncio.sleep(LINGER)
        async with AsyncExitStack() as watching:
            for witness in witnesses:
                await watching.enter_async_context(witness)
            observed = await _observed_text(probe)
        files = {path: data for witness in witnesses for path, data in witness.files.items()}
        files["reprobe.txt"] = f"repeated alone, after the failure: {what}\nseen: {observed}\n".encode()
        if decided:
            files["decided.txt"] = decided
        self._seen[name] = files

    async def keep(self, name: str, objects: Sequence[Document], folder: Path) -> None:
        """Write the evidence of an instance into a folder; without a repeated check, the end state alone."""
        if not self._end:
            self._end = await self._end_state()
        _write(folder / "objects.json", msgspec.json.format(msgspec.json.encode(objects)))
        for path, data in self._seen.get(name, {}).items():
            _write(folder / "reprobe" / path, data)
        for path, data in self._end.items():
            self._share(folder / path, self._first / path, data)
        self._first = self._first if self._first.parts else folder

    def _share(self, place: Path, first: Path, data: bytes) -> None:
        """Write a file of the end state, which is the same for all of a lab: hard links, where the file system has them."""
        try:
            place.hardlink_to(first)
        except OSError:
            _write(place, data)

    async def _end_state(self) -> Files:
        """State of both nodes: read once for a lab, after its last check."""
        files: Files = {}
        for node in self._lab.topology.nodes:
            texts: Mapping[str, str] = {
                **await state.node_rules(self._lab, node, self._proxies.tools),
                **await state.node_surroundings(self._lab, node, self._proxies.tools),
            }
            files |= {f"{node}.{name}.txt": text.encode() for name, text in texts.items() if text}
            files[f"{node}.proxy.log"] = read_tail(self._proxies.log(node), LARGEST_LOG_KEPT).encode()
        return files


def _write(place: Path, data: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)


async def _observed_text(probe: Reprobe) -> str:
    try:
        return "; ".join(dict.fromkeys(seen.text for seen in await probe())) or "nothing"
    except (HarnessError, LabError, OSError) as reason:
        return f"could not be repeated: {reason}"
