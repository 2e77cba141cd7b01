"""Another program of a node, which has rules of its own in the tables that a proxy writes to, as a CNI plugin or a firewall has.

Part of what plays a universe. Its rules match, and do nothing; a proxy must leave them alone (``life.foreign-rules``).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kproxy.lab.network import Network
from kproxy.lab.processes import run_in
from kproxy.model.network import Family

CHAIN = "OTHER-PROGRAM"
_TABLES = {"nat": ("PREROUTING", "POSTROUTING"), "filter": ("INPUT", "FORWARD")}
_PREFIX = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
_RELOAD = "".join(f"*{table}\n:{CHAIN} - [0:0]\n-A {CHAIN} -j RETURN\nCOMMIT\n" for table in _TABLES)


def _rules() -> list[tuple[str, str]]:
    """Rules by their tables, as ``iptables-save`` prints them."""
    return [
        (table, f"-A {chain} {rest}")
        for table, chains in _TABLES.items()
        for chain, rest in ((CHAIN, "-j RETURN"), *((one, f"-j {CHAIN}") for one in chains))
    ]


@dataclass(frozen=True, slots=True)
class OtherProgram:
    """Rules of one IP family on the nodes of a lab; ``tools``: folder of the variant of iptables to use."""

    network: Network
    tools: Path
    family: Family

    async def install(self, node: str) -> None:
        """Write the rules: a chain of its own in each table, and jumps above all others. Raises `LabError`."""
        jumps = "".join(
            f"*{table}\n" + "".join(f"-I {chain} -j {CHAIN}\n" for chain in chains) + "COMMIT\n"
            for table, chains in _TABLES.items()
        )
        await self._restore(node, _RELOAD)
        await self._restore(node, jumps)

    async def reload_again_and_again(self, node: str, pause: float) -> NoReturn:
        """Write its chains anew, every ``pause`` seconds, as a program does that is configured anew."""
        while True:
            await self._restore(node, _RELOAD)
            await asyncio.sleep(pause)

    async def lost_rules(self, node: str) -> str:
        """Rules that are not there any more, as text; empty for none. Raises `LabError`."""
        lost = []
        for table in _TABLES:
            saved = await run_in(self.network[node], [self._tool("save"), "-t", table])
            lost += [
                f"{table}: {rule}" for of, rule in _rules() if of == table and rule not in saved.splitlines()
            ]
        return ", ".join(lost)

    async def _restore(self, node: str, text: str) -> None:
        await run_in(self.network[node], [self._tool("restore"), "--noflush", "--wait", "30"], text)

    def _tool(self, what: str) -> str:
        return str(self.tools / f"{_PREFIX[self.family]}-{what}")
