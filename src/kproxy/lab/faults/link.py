"""Link of a node that goes down and comes back, as when its cable is pulled and its network manager configures it anew.

With the link the kernel takes the node's routes over it and its IPv6 addresses there; IPv4 addresses stay.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kproxy.lab.namespaces import Namespace
from kproxy.lab.processes import run_in
from kproxy.lab.topology import UPLINK

_FLAGS = ("-4", "-6")


@asynccontextmanager
async def link_down(node: Namespace) -> AsyncIterator[None]:
    """Have a node's link down while the block runs; then it has its addresses and routes again. Raises `LabError`.

    A block that is left by an exception leaves it down: who stops there wants to see it so.
    """
    addresses = await _addresses(node)
    routes = {flag: await _routes(node, flag) for flag in _FLAGS}
    await run_in(node, ["ip", "link", "set", UPLINK, "down"])
    yield
    await run_in(node, ["ip", "link", "set", UPLINK, "up"])
    await run_in(node, ["ip", "-6", "-batch", "-"], "\n".join(addresses))
    for flag in _FLAGS:
        await run_in(node, ["ip", flag, "-batch", "-"], "\n".join(routes[flag]))


async def _addresses(node: Namespace) -> list[str]:
    """Lines of a batch that gives the link its present IPv6 addresses."""
    listed = await run_in(node, ["ip", "-6", "-json", "address", "show", "dev", UPLINK, "scope", "global"])
    found = (info for link in json.loads(listed or "[]") for info in link.get("addr_info", ()) if info)
    return [
        f"address replace {info['local']}/{info['prefixlen']} dev {UPLINK} nodad"
        + (" preferred_lft 0" if info.get("deprecated") else "")
        for info in found
    ]


async def _routes(node: Namespace, flag: str) -> list[str]:
    """Lines of a batch that makes a family's routes over the link, but those that the kernel makes for its addresses."""
    listed = await run_in(node, ["ip", flag, "route", "show", "dev", UPLINK])
    return [
        f"route replace {line.strip()} dev {UPLINK}"
        for line in listed.splitlines()
        if "proto kernel" not in line
    ]
