"""Objects that a proxy may have made on a node: chains, rules, tables, sets, virtual servers and devices, as lines of text.

`tests/unit/lab/test_node_objects.py` has an example of each.  A node is listed before the proxy is first started there, and after
it was removed by its own means (``life.cleanup``): what is new then, it left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.processes import run_in

_LISTS: tuple[Sequence[str], ...] = (
    ("iptables-save",),
    ("ip6tables-save",),
    ("nft", "list", "tables"),
    ("ipset", "list", "-name"),
    ("cat", "/proc/net/ip_vs"),
    ("ip", "-oneline", "link"),
)
_OF_IPTABLES = frozenset({"filter", "mangle", "nat", "raw", "security"})
"""Tables that iptables shares with nft: which are there says nothing, and their rules are listed by iptables."""


_VIRTUAL_SERVERS = ("TCP ", "UDP ", "SCTP ", "FWM ")
MOST_NAMED = 5
"""Largest number of objects that are named."""
_OF_KUBELET = "KUBE-FIREWALL"
"""Chain that proxies share with kubelet, and leave to it (``life.cleanup``)."""


async def list_objects(node: Namespace, tools: Path) -> frozenset[str]:
    """Everything on a node that a proxy may have made; ``tools``: folder of the variant of iptables."""
    found: set[str] = set()
    for program, *arguments in _LISTS:
        path = tools / program
        try:
            text = await run_in(node, [str(path) if path.exists() else program, *arguments])
        except FileNotFoundError as error:
            raise LabError(
                f"what is left on a node is looked for by {program}, which is not installed"
            ) from error
        except LabError:  # a kernel without this subsystem has nothing of it
            continue
        found.update(one for one in objects_of(program, text.splitlines()) if _OF_KUBELET not in one)
    return frozenset(found)


def describe_difference(before: frozenset[str], after: frozenset[str]) -> str:
    """Text of what is gone, or new; empty if nothing is."""
    gone, left = before - after, after - before
    which = sorted(gone or left)
    more = f", and {len(which) - MOST_NAMED} more" if len(which) > MOST_NAMED else ""
    named = ", ".join(which[:MOST_NAMED]) + more
    if gone:
        return f"took what is not its own ({named})"
    return f"left {named}" if left else ""


def write_modprobe(tools: Path) -> None:
    """Add a ``modprobe`` that succeeds, as one does for what is built into the kernel: a guest has no list of that."""
    program = tools / "modprobe"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)


def objects_of(program: str, lines: Iterable[str]) -> Iterable[str]:
    """Objects in the output of one of these programs, without what changes by itself."""
    match program:
        case "iptables-save" | "ip6tables-save":
            family = "IPv6" if program.startswith("ip6") else "IPv4"
            table = ""
            for line in lines:
                if line.startswith("*"):
                    table = line[1:]
                elif line.startswith(":") and line.split()[1] == "-":
                    yield f"{family} {table} chain {line[1:].split()[0]}"
                elif line.startswith("-A "):
                    yield f"{family} {table} rule {line}"
        case "nft":
            yield from (f"nft {line}" for line in lines if line.split()[-1] not in _OF_IPTABLES)
        case "ipset":
            yield from (f"ipset {line}" for line in lines)
        case "cat":
            yield from (f"ipvs {line}" for line in lines if line.startswith(_VIRTUAL_SERVERS))
        case _:
            yield from (f"device {line.split()[1].rstrip(':').partition('@')[0]}" for line in lines)
