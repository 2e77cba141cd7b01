"""Another program of a node, which has rules of its own in the tables that a proxy writes to, as a CNI plugin or a firewall has.

Part of what plays a universe. Its rules match, and do nothing; a proxy must leave them alone (``life.foreign-rules``).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kproxy.lab.faults.iptables_tables import BUILT_IN, empty_chains, restore_text
from kproxy.lab.network import Network
from kproxy.lab.processes import run_in
from kproxy.model.network import Family

CHAIN = "OTHER-PROGRAM"
_JUMPS = {"nat": ("PREROUTING", "POSTROUTING"), "filter": ("INPUT", "FORWARD")}
"""Chains by their tables that jump to its own."""
_RULES = {"nat": "-j RETURN", "filter": "-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN"}
"""Its rule of each table. That of filter needs connection tracking, which nft's kernel API ends when the last rule that does is gone,
and with it the translation of all connections."""
_PREFIX = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}


_RELOAD = restore_text({table: (f":{CHAIN} - [0:0]", f"-A {CHAIN} {rule}") for table, rule in _RULES.items()})
_INSTALL_JUMPS = restore_text(
    {table: [f"-I {chain} -j {CHAIN}" for chain in chains] for table, chains in _JUMPS.items()}
)


def _rules(table: str) -> list[str]:
    """Its rules of a table, as ``iptables-save`` prints them."""
    jumps = [f"-A {chain} -j {CHAIN}" for chain in _JUMPS.get(table, ())]
    return [*jumps, *(f"-A {CHAIN} {_RULES[of]}" for of in _RULES if of == table)]


_ALONE = restore_text(
    {
        table: (
            *empty_chains(table),
            *(f":{CHAIN} - [0:0]" for of in _RULES if of == table),
            *_rules(table),
        )
        for table in BUILT_IN
    }
)
"""Its rules and no others, as ``iptables-save`` prints whole tables."""


@dataclass(frozen=True, slots=True)
class OtherProgram:
    """Rules of one IP family on the nodes of a lab; ``tools``: folder of the variant of iptables to use."""

    network: Network
    tools: Path
    family: Family

    async def install(self, node: str) -> None:
        """Write the rules: a chain of its own in each table, and jumps above all others. Raises `LabError`."""
        await self._restore(node, _RELOAD)
        await self._restore(node, _INSTALL_JUMPS)

    async def load_in_place_of_all(self, node: str) -> None:
        """Load its rules in place of all rules and chains of iptables. Raises `LabError`."""
        await run_in(self.network[node], [self._tool("restore"), "--wait", "30"], _ALONE)

    async def reload_again_and_again(self, node: str, pause: float) -> NoReturn:
        """Write its chains anew, every ``pause`` seconds, as a program does that is configured anew."""
        while True:
            await self._restore(node, _RELOAD)
            await asyncio.sleep(pause)

    async def lost_rules(self, node: str) -> str:
        """Rules that are not there any more, as text; empty for none. Raises `LabError`."""
        lost: list[str] = []
        for table in _RULES:
            saved = (await run_in(self.network[node], [self._tool("save"), "-t", table])).splitlines()
            lost += [f"{table}: {rule}" for rule in _rules(table) if rule not in saved]
        return ", ".join(lost)

    async def _restore(self, node: str, text: str) -> None:
        await run_in(self.network[node], [self._tool("restore"), "--noflush", "--wait", "30"], text)

    def _tool(self, what: str) -> str:
        return str(self.tools / f"{_PREFIX[self.family]}-{what}")
