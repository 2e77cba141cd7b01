"""The daemon and an API server that wants proof: TLS both ways by a CA of its own, tokens, plugins; all of it renewed.

Sources: client-go reads certificates and tokens again when their files change, and runs a plugin again when its credential ends
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins).
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import yaml

from kproxy.conformance.binding.lab_objects import node_documents, service_cidr_document
from kproxy.conformance.case import DEFAULT
from kproxy.conformance.subjects.configuration import NodeConfiguration, kube_proxy_configuration
from kproxy.conformance.testbeds.sentinel import Sentinel
from kproxy.lab import namespaces
from kproxy.lab.apiserver import ApiServer, ResourceKind
from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.processes import Process, listen_in, run_in, spawn
from kproxy.model.network import Family
from tests.support.certificates import make

PORT = 6443
ADDRESS = ip_address("127.0.0.1")
WITHIN = 15.0
"""Seconds; a lost connection is tried again after 10 s at most."""
PLUGIN = """\
#!/bin/sh
[ "$KUBERNETES_EXEC_INFO" ] || exit 1
ends=$(date -u -d "+31 seconds" +%Y-%m-%dT%H:%M:%SZ)
printf '{"kind": "ExecCredential", "status": {"token": "%s", "expirationTimestamp": "%s"}}' "$(cat FOLDER/current)" "$ends"
"""


@dataclass
class Stage:
    """A namespace with an API server and, after `start`, a daemon, in nftables mode by `start`."""

    namespace: Namespace
    server: ApiServer
    folder: Path
    daemon: Process | None = None
    listing: tuple[str, ...] = ("nft", "list", "table", "ip", "kube-proxy")
    """The command that shows its rules."""

    def start(self, *, user: dict[str, object], cluster: dict[str, object]) -> None:
        kubeconfig, config = self.folder / "kubeconfig", self.folder / "config.yaml"
        document = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": cluster}],
            "users": [{"name": "x", "user": user}],
        }
        kubeconfig.write_text(yaml.safe_dump(document))
        place = NodeConfiguration(node="a", mode="nftables", kubeconfig=str(kubeconfig))
        config.write_text(kube_proxy_configuration(DEFAULT, place))
        arguments = [sys.executable, "-m", "kproxy", "run", "--config", str(config)]
        self.daemon = spawn(arguments, self.namespace, log=self.folder / "log")

    async def follows(self, number: int) -> None:
        """Whether a new Service comes to the kernel."""
        sentinel = Sentinel(number)
        for document in sentinel.documents:
            self.server.store.put(ResourceKind(document["kind"]), document)
        await self.becomes(lambda listed: str(sentinel.cluster_ip(Family.IPV4)) in listed)

    async def becomes(self, so: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + WITHIN
        while not so(await self.table()):
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]
            await asyncio.sleep(0.05)

    async def table(self) -> str:
        try:
            return await run_in(self.namespace, self.listing)
        except LabError:
            return ""

    def tokens(self) -> list[str]:
        return [request.headers.get("Authorization", "") for request in self.server.requests]


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    namespace = namespaces.create_namespace("api")
    namespace.run(("ip", "link", "set", "lo", "up"))
    with tempfile.TemporaryDirectory(prefix="kproxy-api-") as name:
        async with ApiServer() as server:
            for document in (*node_documents(), service_cidr_document()):
                server.store.put(ResourceKind(document["kind"]), document)
            made = Stage(namespace, server, Path(name))
            try:
                yield made
            finally:
                if made.daemon is not None:
                    made.daemon.kill()
                    await made.daemon.wait()
                namespace.close()


def both_ways(folder: Path) -> ssl.SSLContext:
    """The server's side: it wants a certificate of its CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_certificates_of_both_sides_and_their_authority_are_renewed_without_a_restart() -> None:
    async def renew() -> None:
        async with stage() as made:
            old, new = made.folder, made.folder / "new"
            new.mkdir()
            for folder in (old, new):
                make(folder, f"IP:{ADDRESS}", "server", "client")
            await made.server.listen([listen_in(made.namespace, ADDRESS, PORT)], ssl_context=both_ways(old))
            made.start(
                user={"client-certificate": "client.crt", "client-key": "client.key"},
                cluster={"server": f"https://{ADDRESS}:{PORT}", "certificate-authority": "ca.crt"},
            )
            await made.follows(1)
            while "10.96.0.0/16" not in await made.table():  # noqa: ASYNC110 - ServiceCIDRs are not waited for
                await asyncio.sleep(0.05)
            await made.server.close_listeners()
            await made.server.listen([listen_in(made.namespace, ADDRESS, PORT)], ssl_context=both_ways(new))
            before = await made.table()
            await asyncio.sleep(1)
            assert await made.table() == before
            for name in ("client.crt", "ca.crt", "client.key"):
                (new / name).replace(old / name)
                await asyncio.sleep(0.3)
            await made.follows(2)

    asyncio.run(renew())


def test_a_token_in_a_file_is_the_one_that_is_there_when_it_is_needed() -> None:
    async def renew() -> None:
        async with stage() as made:
            token = made.folder / "token"
            token.write_text("old")
            await made.server.listen([listen_in(made.namespace, ADDRESS, PORT)])
            made.start(user={"tokenFile": "token"}, cluster={"server": f"http://{ADDRESS}:{PORT}"})
            await made.follows(1)
            assert set(made.tokens()) == {"Bearer old"}
            token.write_text("new")
            made.server.drop_watches()
            await made.follows(2)
            assert made.tokens()[-1] == "Bearer new"

    asyncio.run(renew())


def test_a_plugin_is_run_again_when_what_it_gave_has_ended() -> None:
    async def renew() -> None:
        async with stage() as made:
            current, plugin = made.folder / "current", made.folder / "plugin"
            current.write_text("first")
            plugin.write_text(PLUGIN.replace("FOLDER", str(made.folder)))
            plugin.chmod(0o755)
            await made.server.listen([listen_in(made.namespace, ADDRESS, PORT)])
            made.start(user={"exec": {"command": "./plugin"}}, cluster={"server": f"http://{ADDRESS}:{PORT}"})
            await made.follows(1)
            assert set(made.tokens()) == {"Bearer first"}
            current.write_text("second")
            await asyncio.sleep(2.1)
            made.server.drop_watches()
            await made.follows(2)
            assert made.tokens()[-1] == "Bearer second"

    asyncio.run(renew())
