"""State of a node: rules with counters, conntrack, virtual servers, sets, addresses, routes, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

from kproxy.lab.lab import Lab
from kproxy.lab.namespaces import LabError
from kproxy.lab.probes import http
from kproxy.lab.probes.observation import ProbeRequest
from kproxy.lab.processes import run_in

METRICS_PORT = 10249
"""Port of the metrics in a subject's KubeProxyConfiguration."""

RULES: Mapping[str, tuple[str, ...]] = {
    "iptables": ("iptables-save", "-c"),
    "ip6tables": ("ip6tables-save", "-c"),
    "nft": ("nft", "list", "ruleset"),
    "ipvs": ("ipvsadm", "-L", "-n", "--stats", "--exact"),
}
"""Commands that list rules with packet counters."""

_TABLES: Mapping[str, tuple[str, ...]] = {
    "conntrack": ("conntrack", "-L", "-o", "extended"),
    "ipset": ("ipset", "list"),
}
_PLACE: Mapping[str, tuple[str, ...]] = {
    "addresses": ("ip", "addr"),
    "routes": ("ip", "route", "show", "table", "all"),
}


async def node_rules(lab: Lab, node: str, tools: Path) -> dict[str, str]:
    """Rules and tables of a node; ``tools``: a folder with the variant of iptables that the subject finds."""
    return await _outputs(lab, node, {**RULES, **_TABLES}, tools)


async def node_surroundings(lab: Lab, node: str, tools: Path) -> dict[str, str]:
    """Surroundings of a node's rules, and its proxy's metrics."""
    found = await _outputs(lab, node, _PLACE, tools)
    return {**found, "metrics": await _metrics(lab, node)}


async def _outputs(
    lab: Lab, node: str, commands: Mapping[str, tuple[str, ...]], tools: Path
) -> dict[str, str]:
    texts = await asyncio.gather(*(_output(lab, node, command, tools) for command in commands.values()))
    return dict(zip(commands, texts, strict=True))


async def _output(lab: Lab, node: str, command: tuple[str, ...], tools: Path) -> str:
    """Output of a command; empty where this kernel or machine has no such thing."""
    own = tools / command[0]
    try:
        return await run_in(lab.network[node], (str(own) if own.exists() else command[0], *command[1:]))
    except (LabError, OSError):
        return ""


async def _metrics(lab: Lab, node: str) -> str:
    request = ProbeRequest(sender=node, destination=ip_address("127.0.0.1"), port=METRICS_PORT, patience=2.0)
    try:
        answer = await http.http_get(lab, request, "/metrics")
    except (OSError, ValueError, IndexError):
        return ""
    return answer.body.decode(errors="replace") if isinstance(answer, http.Response) else ""
