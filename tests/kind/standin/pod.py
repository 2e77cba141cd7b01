"""The life of one pod on a stand-in node: the first container's command as a process in the pod's network.

Images, volumes, hooks, other containers and the other kinds of probe are not there.  A command that begins with a Python
(``/usr/bin/python3`` of our image) is run with this one.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import aiohttp

from kproxy.lab.namespaces import Namespace
from kproxy.lab.processes import Process, spawn
from tests.kind.standin.api import Api, Document
from tests.kind.standin.places import Place, Places
from tests.kind.standin.probes import PROBES, Prober

RESTART_PAUSE = 1.0
FOREVER = 1e6
SIGNALLED = 128


class Node(Protocol):
    """Interface of a pod to its node."""

    name: str
    namespace: Namespace
    places: Places
    api: Api
    client: aiohttp.ClientSession
    folder: Path


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def command_here(arguments: list[str]) -> list[str]:
    """An image's command, translated for this machine."""
    return [sys.executable if Path(arguments[0]).name.startswith("python") else arguments[0], *arguments[1:]]


class Pod:
    """A pod that is bound to a node; `live` returns when its object is removed, or was removed by others."""

    def __init__(self, node: Node, document: Document) -> None:
        self._node, self._spec, self._metadata = node, document["spec"], document["metadata"]
        self._container: Document = self._spec["containers"][0]
        self._path = f"/api/v1/namespaces/{self._metadata['namespace']}/pods/{self._metadata['name']}"
        self._ending = asyncio.Event()
        self._grace = FOREVER
        self._restarts = 0
        self._ready = False

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self._metadata["namespace"], self._metadata["name"]

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self._node.folder / f"{self._metadata['uid']}.log"

    def end(self, grace: float) -> None:
        """Let it end, within ``grace`` seconds; a shorter grace replaces a longer one."""
        self._grace = min(self._grace, grace)
        self._ending.set()

    async def live(self) -> None:
        code = 0
        place = (
            self._node.places.on_host() if self._spec.get("hostNetwork") else await self._node.places.take()
        )
        try:
            while not self._ending.is_set():
                code = await self._run(place)
                if self._is_over(code):
                    break
                await self._report("Running", place, {"waiting": {"reason": "CrashLoopBackOff"}})
                self._restarts += 1
                await self._requested_to_end(RESTART_PAUSE)
        finally:
            await self._node.places.leave(place)
        await self._report("Failed" if code else "Succeeded", place, {"terminated": {"exitCode": code}})
        await self._ending.wait()
        gone = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._metadata["uid"]}}
        await self._node.api.insist("DELETE", self._path, gone, "application/json")

    def _lacking(self) -> str:
        """Reason why the stand-in cannot run this pod, or empty."""
        if not self._container.get("command"):
            return "the stand-in kubelet knows no images: give a command"
        if not PROBES & self._container.get("readinessProbe", {"exec": None}).keys():
            return f"the stand-in kubelet has no readiness probes but {sorted(PROBES)}"
        return ""

    def _is_over(self, code: int) -> bool:
        policy = self._spec.get("restartPolicy", "Always")
        return self._ending.is_set() or policy == "Never" or (policy == "OnFailure" and not code)

    async def _run(self, place: Place) -> int:
        """Until its end; the exit status."""
        self._ready = False
        arguments = [*self._container.get("command", ()), *self._container.get("args", ())]
        if lacking := self._lacking():
            arguments = ["sh", "-c", f"echo {lacking}; exit 1"]
        started, env = {"running": {"startedAt": now()}}, self._environment(place)
        process = spawn(command_here(arguments), place.namespace, log=self.log, env=env)
        await self._report("Running", place, started)

        async def tell(ready: object) -> None:
            self._ready = bool(ready)
            await self._report("Running", place, started)

        prober = Prober(self._node.client, self._node.namespace, place, self._container, command_here)
        probing = asyncio.create_task(prober.watch(tell))
        ended = asyncio.create_task(process.wait())
        try:
            await self._until_over(process, ended)
        finally:
            process.kill()
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
        self._ready = False
        code = await ended
        return code if code >= 0 else SIGNALLED - code

    async def _until_over(self, process: Process, ended: asyncio.Task[int]) -> None:
        requested = asyncio.create_task(self._ending.wait())
        await asyncio.wait({ended, requested}, return_when=asyncio.FIRST_COMPLETED)
        requested.cancel()
        if ended.done():
            return
        process.signal(signal.SIGTERM)
        began = asyncio.get_running_loop().time()
        while not ended.done() and asyncio.get_running_loop().time() < began + self._grace:
            await asyncio.wait({ended}, timeout=0.1)

    async def _requested_to_end(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            return

    def _environment(self, place: Place) -> Mapping[str, str]:
        home = self.log.with_suffix("")
        home.mkdir(exist_ok=True)
        own = {"HOSTNAME": self._metadata["name"], "TMPDIR": str(home), "PYTHONUNBUFFERED": "1"}
        for entry in self._container.get("env", ()):
            field = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            own[entry["name"]] = self._field(field, place) if field else entry.get("value", "")
        return own

    def _field(self, path: str, place: Place) -> str:
        fields: dict[str, str] = {
            "metadata.name": self._metadata["name"],
            "metadata.namespace": self._metadata["namespace"],
            "metadata.uid": self._metadata["uid"],
            "spec.nodeName": self._node.name,
            "status.hostIP": str(self._node.places.own[0]),
            "status.podIP": str(place.addresses[0]),
            "status.podIPs": ",".join(map(str, place.addresses)),
        }
        return fields[path]

    async def _report(self, phase: str, place: Place, state: Document) -> None:
        ready = "True" if self._ready else "False"
        conditions = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": ready, "Ready": ready}
        container = {
            "name": self._container["name"],
            "image": self._container["image"],
            "imageID": "",
            "ready": self._ready,
            "started": "running" in state,
            "restartCount": self._restarts,
            "state": state,
        }
        status = {
            "phase": phase,
            "hostIP": str(self._node.places.own[0]),
            "hostIPs": [{"ip": str(address)} for address in self._node.places.own],
            "podIP": str(place.addresses[0]),
            "podIPs": [{"ip": str(address)} for address in place.addresses],
            "conditions": [{"type": kind, "status": value} for kind, value in conditions.items()],
            "containerStatuses": [container],
        }
        await self._node.api.insist("PATCH", f"{self._path}/status", {"status": status})
