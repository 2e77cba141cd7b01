"""Readiness probes, as a kubelet makes them: from the node's network; ``httpGet``, ``tcpSocket`` and ``exec``."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from kproxy.lab.namespaces import Namespace
from kproxy.lab.processes import wait_finished
from tests.kind.standin.api import Document
from tests.kind.standin.places import Place

PROBES = {"httpGet", "tcpSocket", "exec"}
_SILENT: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)


@dataclass(frozen=True, slots=True)
class Prober:
    """Prober of one container of a pod."""

    client: aiohttp.ClientSession
    """Of the node's network."""
    node: Namespace
    place: Place
    container: Document
    command: Callable[[list[str]], list[str]]
    """Translation of an exec probe's command for this machine."""

    async def watch(self, tell: Callable[[bool], Awaitable[None]]) -> None:
        """Call ``tell`` at each change of readiness, without end.  Without a probe: once, ready."""
        probe = self.container.get("readinessProbe")
        if probe is None:
            await tell(True)
            return
        ready, row, last = False, 0, None
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while True:
            good = await self._ask(probe)
            row, last = (row + 1 if good == last else 1), good
            enough = probe.get("successThreshold", 1) if good else probe.get("failureThreshold", 3)
            if good != ready and row >= enough:
                ready = good
                await tell(ready)
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _ask(self, probe: Document) -> bool:
        try:
            async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
                return await self._once(probe)
        except (TimeoutError, OSError, aiohttp.ClientError):
            return False

    async def _once(self, probe: Document) -> bool:
        match probe:
            case {"httpGet": requested}:
                url = f"http://{self._at(requested)}{requested.get('path', '/')}"
                async with self.client.get(url, allow_redirects=False) as answer:
                    return 200 <= answer.status < 400
            case {"tcpSocket": requested}:
                host, _, port = self._at(requested).rpartition(":")
                sock = self.node.socket(socket.AF_INET, socket.SOCK_STREAM)
                with sock:
                    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
                return True
            case {"exec": requested}:
                process = self.place.namespace.start(self.command(requested["command"]), **_SILENT)
                try:
                    return await wait_finished(process) == 0
                finally:
                    process.kill()
                    process.wait()
            case _:
                raise NotImplementedError(sorted(probe))

    def _at(self, requested: Document) -> str:
        port = requested["port"]
        if isinstance(port, str):
            named = {p.get("name"): p["containerPort"] for p in self.container.get("ports", ())}
            port = named[port]
        return f"{requested.get('host', self.place.addresses[0])}:{port}"
