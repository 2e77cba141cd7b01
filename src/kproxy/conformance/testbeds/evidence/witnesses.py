"""Witnesses of a repeated check; each records what it observes, as files by name.

A witness is an asynchronous context manager around the check. A new one (the trace of the rules that decided, say) is
a class like these, and its name in `WITNESSES`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol as Interface

from kproxy.conformance.testbeds.evidence import counters, state
from kproxy.lab.captures import pcapng
from kproxy.lab.lab import Lab

Files = dict[str, bytes]
"""Contents by path below a case's folder."""

LINGER = 0.05
"""Seconds before the check and after its result, for the packets that end connections."""


class Witness(Interface):
    """Observes from its entry to its exit; ``files`` is filled then."""

    files: Files

    def __init__(self, lab: Lab, tools: Path) -> None: ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *exception: object) -> None: ...


class PacketWitness:
    """Recorder of every packet of every namespace, as pcapng."""

    def __init__(self, lab: Lab, _: Path) -> None:
        self.files: Files = {}
        self._lab = lab
        self._recorders: list[pcapng.PacketRecorder] = []

    async def __aenter__(self) -> None:
        """Begin to record."""
        self._recorders = [
            pcapng.PacketRecorder(self._lab.network[name]) for name in self._lab.topology.senders
        ]

    async def __aexit__(self, *exception: object) -> None:
        """Keep the recorded packets; a namespace without packets has no file."""
        await asyncio.sleep(LINGER)
        for recorder in self._recorders:
            if packets := recorder.packets():
                self.files[f"pcap/{recorder.name}.pcapng"] = pcapng.encode_pcapng(
                    packets, f"namespace {recorder.name}"
                )
        pcapng.close_recorders(self._recorders)


class RulesWitness:
    """Rules and tables before and after where they differ, and the rules whose counters grew."""

    def __init__(self, lab: Lab, tools: Path) -> None:
        self.files: Files = {}
        self._lab, self._tools = lab, tools
        self._before: Mapping[str, Mapping[str, str]] = {}

    async def __aenter__(self) -> None:
        """Read the nodes' rules."""
        self._before = await self._read()

    async def __aexit__(self, *exception: object) -> None:
        """Read them again and keep the differences."""
        after = await self._read()
        for node, tables in after.items():
            before = self._before[node]
            for name, text in tables.items():
                if text != before[name]:
                    self.files[f"{node}.{name}.before.txt"] = before[name].encode()
                    self.files[f"{node}.{name}.after.txt"] = text.encode()
            counted = {name: counters.counted_lines(before[name], tables[name]) for name in state.RULES}
            counted["nft"] = counters.without_iptables_nft(
                counted["nft"], tables["iptables"] + tables["ip6tables"]
            )
            lines = [f"{name}: {line}\n" for name, those in counted.items() for line in those]
            self.files[f"{node}.counted.txt"] = "".join(lines).encode()

    async def _read(self) -> dict[str, dict[str, str]]:
        read = await asyncio.gather(
            *(state.node_rules(self._lab, node, self._tools) for node in self._lab.topology.nodes)
        )
        return dict(zip(self._lab.topology.nodes, read, strict=True))


WITNESSES: tuple[type[Witness], ...] = (RulesWitness, PacketWitness)
"""Witnesses in the order in which they begin; the last to begin ends first."""
