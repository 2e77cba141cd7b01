"""The manifests at a real API server: it takes them, and what they allow the daemon is enough, and is needed.

Needs etcd and kube-apiserver (``KUBEBUILDER_ASSETS``); without them the tests fail with that message.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from kproxy.lab.kube import KubeApiServer, find_assets
from kproxy.lab.processes import Process, spawn
from tests.support.deploy import OVERLAYS, Document, Objects, rendered

ADDRESS = "127.0.0.1:6443"
IDENTITY, TOKEN = "system:serviceaccount:kube-system:kproxy", "the-daemons-own"
PLURALS = {
    "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/kube-system/configmaps",
    "DaemonSet": "/apis/apps/v1/namespaces/kube-system/daemonsets",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}
FEW_RIGHTS = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
"""Nothing to set: in a network namespace ``nf_conntrack_max`` cannot be."""


class Cluster(KubeApiServer):
    """One that authorizes what clients do, as clusters do, and lets pods be privileged, as those with kube-proxy do."""

    def _apiserver_arguments(self) -> list[str]:
        arguments = [word for word in super()._apiserver_arguments() if "--authorization-mode" not in word]
        tokens = self._directory / "tokens.csv"
        tokens.write_text(f"{tokens.read_text()}{TOKEN},{IDENTITY},daemon\n")
        return [*arguments, "--authorization-mode=Node,RBAC", "--allow-privileged=true"]

    def apply(self, document: Document) -> None:
        path = PLURALS.get(document["kind"], "/api/v1/nodes")
        where = f"{path}/{document['metadata']['name']}?fieldManager=test&force=true&fieldValidation=Strict"
        self.store.request("PATCH", where, document, "application/apply-patch+yaml")

    def allows(self, verb: str, resource: str) -> bool:
        """Whether the daemon may do that, by the server's own authorizer."""
        requested = {"user": IDENTITY, "resourceAttributes": {"verb": verb, "resource": resource}}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": requested}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = self.store.request("POST", path, review, "application/json")
        return bool(answer["status"]["allowed"])

    def events(self) -> list[str]:
        return [event["reason"] for event in self.store.request("GET", "/api/v1/events")["items"]]


@asynccontextmanager
async def cluster(where: Path) -> AsyncIterator[Cluster]:
    async with Cluster(find_assets(), where / "server") as server:
        server.apply(NODE)
        yield server


def start(server: Cluster, objects: Objects, where: Path) -> Process:
    """The daemon as the DaemonSet starts it, beside the API server and with its own identity."""
    data, (container,) = (
        objects["ConfigMap", "kproxy"]["data"],
        objects["DaemonSet", "kproxy"]["spec"]["template"]["spec"]["containers"],
    )
    kubeconfig, config = where / "kubeconfig.conf", where / "config.conf"
    kubeconfig.write_text(server.kubeconfig(ADDRESS).replace(server._token, TOKEN))
    text = data["config.conf"].replace("/var/lib/kube-proxy", str(where))
    config.write_text(yaml.safe_dump(yaml.safe_load(text) | {"conntrack": FEW_RIGHTS}))
    arguments = [
        word.replace("/var/lib/kube-proxy", str(where)).replace("$(NODE_NAME)", "node-a")
        for word in container["args"]
    ]
    return spawn([sys.executable, "-m", "kproxy", *arguments], server._namespace, log=where / "log")


async def until_allowed(server: Cluster) -> None:
    """The authorizer learns of a role and its binding by watches of its own."""
    async with asyncio.timeout(30):
        while not server.allows("list", "services"):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.05)


async def until_logged(daemon: Process, text: str) -> None:
    deadline = time.monotonic() + 30
    while text not in (log := daemon.log.read_text()):
        assert daemon.returncode is None, log
        assert time.monotonic() < deadline, log
        await asyncio.sleep(0.1)


async def stop(daemon: Process) -> None:
    daemon.kill()
    await daemon.wait()


def test_every_object_is_taken_as_it_is(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path) as server:
            for overlay in OVERLAYS:
                for document in rendered(overlay).values():
                    server.apply(document)

    asyncio.run(run())


def test_the_daemon_may_do_what_it_does_with_the_role_and_not_without(tmp_path: Path) -> None:
    async def run() -> None:
        objects = rendered(next(path for path in OVERLAYS if path.name == "nftables"))
        async with cluster(tmp_path) as server:
            daemon = start(server, objects, tmp_path)
            try:
                await until_logged(daemon, "forbidden")
            finally:
                await stop(daemon)
            daemon.log.unlink()
            for document in objects.values():
                server.apply(document)
            await until_allowed(server)
            daemon = start(server, objects, tmp_path)
            try:
                await until_logged(daemon, "IPv4: synced")
                assert "forbidden" not in daemon.log.read_text()
                assert "Starting" in server.events()
            finally:
                await stop(daemon)

    asyncio.run(run())
