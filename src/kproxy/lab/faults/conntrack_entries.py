"""Conntrack entries inserted into a namespace, and the kernel's IDs of them.

Of the lab: for traffic that no probe sends. Uses ``conntrack``; failures are `LabError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kproxy.lab.namespaces import Namespace
from kproxy.lab.probes.observation import Socket
from kproxy.lab.processes import run_in
from kproxy.model.network import Protocol

_LASTS = 3600
_FIELD = re.compile(r"(src|dst|sport|dport|id)=(\S+)")
_STATE_ARGUMENTS = {Protocol.TCP: ("--state", "ESTABLISHED"), Protocol.UDP: ()}


@dataclass(frozen=True, slots=True)
class InsertedEntry:
    """One entry: sender, destination, and the source of replies, which differs from the destination if it is DNATed."""

    protocol: Protocol
    sender: Socket
    to: Socket
    answered_by: Socket

    def __str__(self) -> str:
        by = f", answered by {self.answered_by}" if self.answered_by != self.to else ""
        return f"{self.protocol.value} {self.sender} -> {self.to}{by}"


async def insert_entry(namespace: Namespace, entry: InsertedEntry) -> None:
    """Insert an entry that does not expire during any run."""
    argv = (
        *("conntrack", "-I", "-p", entry.protocol.value.lower(), "-t", str(_LASTS)),
        *("-s", str(entry.sender.address), "--sport", str(entry.sender.port)),
        *("-d", str(entry.to.address), "--dport", str(entry.to.port)),
        *("-r", str(entry.answered_by.address), "--reply-port-src", str(entry.answered_by.port)),
        *("-q", str(entry.sender.address), "--reply-port-dst", str(entry.sender.port)),
        *_STATE_ARGUMENTS[entry.protocol],
    )
    await run_in(namespace, argv)


async def entry_identities(
    namespace: Namespace, entries: Iterable[InsertedEntry]
) -> Mapping[InsertedEntry, str]:
    """Kernel IDs of those entries that exist."""
    wanted = {_key(entry): entry for entry in entries}
    found: dict[InsertedEntry, str] = {}
    for family in sorted({entry.to.address.version for entry in wanted.values()}):
        listed = await run_in(namespace, ("conntrack", "-L", "-f", f"ipv{family}", "-o", "id"))
        for line in listed.splitlines():
            fields = _FIELD.findall(line)
            key = (line.split()[0].upper(), *(value for _, value in fields[:4]))
            if key in wanted:
                found[wanted[key]] = fields[-1][1]
    return found


def _key(entry: InsertedEntry) -> tuple[str, ...]:
    parts = (entry.sender.address, entry.to.address, entry.sender.port, entry.to.port)
    return (entry.protocol.value, *map(str, parts))
