"""Jumps recorded from a real kube-proxy."""

from pathlib import Path

from kproxy.model.network import Family

RECORDED = Path(__file__).with_name("recorded")


def recorded_jumps(family: Family) -> list[str]:
    """The lines with their table before them, as in the file; `recorded/` names their source."""
    table, found = "", []
    for line in (RECORDED / f"kube-proxy-jumps.{family.value.lower()}.txt").read_text().splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith("-A "):
            found.append(f"{table} {line}")
    return found
