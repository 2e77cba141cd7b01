"""Addresses of a node that another program takes away."""

from __future__ import annotations

import json

from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.processes import run_in


async def flush_dummies(node: Namespace) -> None:
    """Take all addresses of both families from interfaces of type dummy, to which proxies bind Services'. Raises `LabError`, also without one."""
    listed = await run_in(node, ["ip", "-json", "link", "show", "type", "dummy"])
    names = [link["ifname"] for link in json.loads(listed or "[]") if link]
    if not names:
        raise LabError(
            "there is no dummy interface whose addresses could be removed: do not claim flushedAddresses"
        )
    for name in names:
        await run_in(node, ["ip", "address", "flush", "dev", name])
