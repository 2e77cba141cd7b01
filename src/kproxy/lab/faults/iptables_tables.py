"""Whole tables of iptables as another program of a node loads them, in place of all rules and chains that are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kproxy.lab.namespaces import Namespace
from kproxy.lab.processes import run_in

BUILT_IN = {
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
}
"""Tables, and the chains that each always has."""


def restore_text(tables: Mapping[str, Iterable[str]]) -> str:
    """Text for ``iptables-restore``: lines by their tables."""
    return "".join(
        f"*{table}\n" + "".join(f"{line}\n" for line in lines) + "COMMIT\n" for table, lines in tables.items()
    )


def empty_chains(table: str) -> list[str]:
    """Lines for a table's own chains, without a rule."""
    return [f":{chain} ACCEPT [0:0]" for chain in BUILT_IN[table]]


async def flush_tables(node: Namespace, tools: Path, tables: Iterable[str]) -> None:
    """Leave no rule and no chain in tables of iptables, of either family; ``tools``: folder of the variant. Raises `LabError`."""
    text = restore_text({table: empty_chains(table) for table in tables})
    for tool in ("iptables-restore", "ip6tables-restore"):
        await run_in(node, [str(tools / tool), "--wait", "30"], text)
