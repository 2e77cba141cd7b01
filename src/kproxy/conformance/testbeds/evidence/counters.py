"""Rules that packets matched: those whose counters differ between two listings. Pure.

Parses the output of ``iptables-save -c``, ``nft list ruleset`` and ``ipvsadm -L --stats``, line by line: a line is
identified by all of it but its counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

_COUNTS = re.compile(r"^\[(\d+):\d+\]|counter packets (\d+) bytes \d+|(?<=\S)((?:\s+\d+){5})\s*$")
"""Counts of a rule of iptables, of nftables, of a virtual or real server (Conns, InPkts, OutPkts, InBytes, OutBytes)."""

_IPTABLES = re.compile(r"^\+\d+  ip6? ")

Line = tuple[str, str, int]
"""Table or chain, text without counts, and ordinal among equal lines."""


def counted_lines(before: str, after: str) -> list[str]:
    """Lines whose counters grew: number of packets, context, the line; in the order of the rules."""
    old = dict(_counted(before))
    return [
        f"+{matched}  {line[0]}  {line[1]}".replace("    ", " ")
        for line, count in _counted(after)
        if (matched := _matched_lines(old.get(line, 0), count))
    ]


def _matched_lines(before: int, after: int) -> int:
    """Packets that a rule counted between two listings.

    A counter lower than before belongs to a rule that was replaced and counts from zero.
    """
    return after - before if after >= before else after


def without_iptables_nft(lines: list[str], listed: str) -> list[str]:
    """Lines of nftables without the tables of iptables-nft, which ``iptables-save`` lists more legibly."""
    tables = {line[1:] for line in listed.splitlines() if line.startswith("*")}
    return [line for line in lines if not (_IPTABLES.search(line) and line.split()[2] in tables)]


def _counted(listing: str) -> Iterator[tuple[Line, int]]:
    """Every line with counts, and its packets (for a server its connections)."""
    where: list[str] = []
    seen: Counter[tuple[str, str]] = Counter()
    for raw in listing.splitlines():
        line = raw.strip()
        where = _context(line, where)
        found = _COUNTS.search(line)
        if found is None or line.startswith(":"):
            continue
        rest = " ".join(_COUNTS.sub(" ", line).split())
        place = " ".join(where)
        seen[place, rest] += 1
        yield (place, rest, seen[place, rest]), int((found[1] or found[2] or found[3]).split()[0])


def _context(line: str, where: list[str]) -> list[str]:
    """Table or chain (nftables: both) that a line is in or begins; the virtual server of a real one."""
    if line.startswith("*"):
        return [line[1:]]
    if line.endswith("{"):
        return [*where, " ".join(line[:-1].split()[1:])]
    if line == "}":
        return where[:-1]
    if line.split()[:1] in (["TCP"], ["UDP"], ["SCTP"]):
        return [line.split()[1]]
    return where
