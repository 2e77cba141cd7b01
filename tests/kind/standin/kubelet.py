"""Stand-in for a node's kubelet: its Node and Lease, the pods that are bound to it, and their logs.

It runs processes instead of containers (`tests.kind.standin.pod`).  What the API server and the
controllers see of it is a kubelet's: conditions, addresses, readiness, graceful ends.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
from aiohttp import web

from kproxy.lab.namespaces import Namespace
from kproxy.lab.processes import listen_in
from kproxy.model.network import Family
from tests.kind.standin import wires
from tests.kind.standin.api import Api, Document, session
from tests.kind.standin.places import Places
from tests.kind.standin.pod import Pod, now

PORT = 10250
LEASE_SECONDS, RENEWAL = 40, 10.0
CONTROL_PLANE_ROLE = "node-role.kubernetes.io/control-plane"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@dataclass
class Kubelet:
    """The kubelet of one node; made by `kubelet`."""

    name: str
    namespace: Namespace
    places: Places
    api: Api
    client: aiohttp.ClientSession
    folder: Path
    pods: dict[str, Pod] = field(default_factory=dict)
    _lives: set[asyncio.Task[None]] = field(default_factory=set)

    async def register(self) -> None:
        await self.api.insist("POST", "/api/v1/nodes", _node(self.name), "application/json")
        await self.api.insist(
            "PATCH", f"/api/v1/nodes/{self.name}/status", {"status": _status(self.name, self.places)}
        )

    async def keep_lease(self) -> None:
        """For ever."""
        spec = {
            "holderIdentity": self.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": _micro_time(),
        }
        lease = {"metadata": {"name": self.name}, "spec": spec}
        await self.api.insist("POST", _LEASES, lease, "application/json")
        while True:
            await asyncio.sleep(RENEWAL)
            renewed = {"spec": {"renewTime": _micro_time()}}
            await self.api.insist("PATCH", f"{_LEASES}/{self.name}", renewed)

    async def run_pods(self) -> None:
        """For ever."""
        async for bound in self.api.follow("/api/v1/pods", f"spec.nodeName={self.name}"):
            for uid, document in bound.items():
                if uid not in self.pods and document["status"]["phase"] in {"Pending", "Running"}:
                    self._begin(uid, Pod(self, document))
                if uid in self.pods and "deletionTimestamp" in document["metadata"]:
                    self.pods[uid].end(document["metadata"]["deletionGracePeriodSeconds"])
            for uid in self.pods.keys() - bound.keys():
                self.pods[uid].end(0)

    async def logs(self, request: web.Request) -> web.Response:
        """Output for ``kubectl logs``, at a kubelet's own path."""
        wanted = request.match_info["namespace"], request.match_info["pod"]
        pod = next((pod for pod in self.pods.values() if pod.key == wanted), None)
        if pod is None or "follow" in request.query:
            raise web.HTTPBadRequest(
                text="the stand-in kubelet keeps logs while the pod is there, to be read at once"
            )
        lines = pod.log.read_text(errors="replace").splitlines(keepends=True)
        return web.Response(
            text="".join(lines[-int(request.query.get("tailLines", len(lines))) or len(lines) :])
        )

    async def close(self) -> None:
        """Kill all pods' processes."""
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)

    def _begin(self, uid: str, pod: Pod) -> None:
        self.pods[uid] = pod
        life = asyncio.create_task(pod.live())
        self._lives.add(life)

        def over(_: object) -> None:
            self._lives.discard(life)
            del self.pods[uid]
            if not life.cancelled() and (error := life.exception()):
                raise error  # told by the loop

        life.add_done_callback(over)


@asynccontextmanager
async def kubelet(
    name: str, namespace: Namespace, where: tuple[str, str, bytes], certificates: Path, folder: Path
) -> AsyncIterator[Kubelet]:
    """One that is at work; ``where``: the server's URL as its node reaches it, the token, the authority.

    ``certificates``: with the pair its own port shows, which nobody verifies.
    """
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(session(namespace))
        made = Kubelet(name, namespace, Places(name, namespace), Api(client, *where), client, folder)
        stack.push_async_callback(made.close)
        await made.register()
        stack.push_async_callback(await _serve(made, certificates))
        for work in (made.keep_lease(), made.run_pods()):
            stack.push_async_callback(_cancel, asyncio.create_task(work))
        yield made


async def _serve(made: Kubelet, certificates: Path) -> Callable[[], Awaitable[None]]:
    """Its own port, for ``kubectl logs``; how to close it."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", made.logs)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    address = wires.node_address(made.name, Family.IPV4)
    await web.SockSite(runner, listen_in(made.namespace, address, PORT), ssl_context=tls).start()
    return runner.cleanup


async def _cancel(work: asyncio.Task[None]) -> None:
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _node(name: str) -> Document:
    ranges = [str(wires.pod_range(name, family)) for family in Family]
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": wires.ZONES[name],
    }
    spec: Document = {"podCIDR": ranges[0], "podCIDRs": ranges}
    if name == wires.CONTROL_PLANE:
        labels[CONTROL_PLANE_ROLE] = ""
        spec["taints"] = [{"key": CONTROL_PLANE_ROLE, "effect": "NoSchedule"}]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _status(name: str, places: Places) -> Document:
    addresses = [{"type": "InternalIP", "address": str(address)} for address in places.own]
    healthy = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}
    reason = {"reason": "StandIn", "lastHeartbeatTime": now(), "lastTransitionTime": now()}
    room = {"cpu": "4", "memory": "4Gi", "pods": "100"}
    return {
        "addresses": [*addresses, {"type": "Hostname", "address": name}],
        "capacity": room,
        "allocatable": room,
        "conditions": [{"type": kind, "status": status, **reason} for kind, status in healthy.items()],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": PORT}},
    }
