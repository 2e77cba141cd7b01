"""Processes of etcd and kube-apiserver: started, awaited, killed."""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import subprocess
import time
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from kproxy.lab import namespaces
from kproxy.lab.apiserver import kubeconfig
from kproxy.lab.kube.assets import Assets
from kproxy.lab.kube.relay import Relay
from kproxy.lab.kube.store import KubeStore, on_loopback
from kproxy.lab.namespaces import LabError
from kproxy.lab.processes import Process, spawn
from kproxy.lab.topology import LAB
from kproxy.model.network import Family
from kproxy.tls import client_context

PORT = 6443
START_PATIENCE = 120.0
"""Seconds until it must serve; on an idle machine it takes about four."""

_ETCD = "http://127.0.0.1:2379"
_LOG_TAIL = 10


class KubeApiServer:
    """kube-apiserver with an etcd of its own, empty at first; an asynchronous context manager.

    Every client with its token may do everything; admission is its default but for service accounts, whose
    controllers do not run.
    """

    def __init__(self, assets: Assets, directory: Path) -> None:
        self._assets, self._directory = assets, directory
        self._namespace = namespaces.create_namespace("apiserver")
        self._processes: list[Process] = []
        self._token = secrets.token_hex(16)
        self._relay = Relay(self._namespace, PORT)
        self._authority = b""
        self._connections = ExitStack()
        self.store: KubeStore

    async def __aenter__(self) -> Self:
        """Start both, and wait until they serve."""
        self._namespace.run(("ip", "link", "set", "lo", "up"))
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self._start(self._etcd_arguments(), "etcd")
            self._start(self._apiserver_arguments(), "kube-apiserver")
            await self._serving()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Kill them."""
        await self._relay.close()
        self._connections.close()
        for process in self._processes:
            process.kill()
            await process.wait()
        self._namespace.close()

    async def listen(self, sockets: Iterable[socket.socket]) -> None:
        """Serve on listening sockets, of any namespace, and own them afterwards."""
        for sock in sockets:
            await self._relay.listen(sock)

    def kubeconfig(self, address: str) -> str:
        """Kubeconfig for clients in the namespace of its sockets; ``address`` is host and port."""
        return kubeconfig(f"https://{address}", token=self._token, certificate_authority=self._authority)

    def url(self, address: str) -> str:
        """URL for clients in the namespace of its sockets; ``address`` is host and port."""
        return f"https://{address}"

    # ------------------------------------------------------------------ processes

    def _start(self, arguments: list[str], name: str) -> None:
        process = spawn(arguments, self._namespace, log=self._directory / f"{name}.log")
        self._processes.append(process)

    def _etcd_arguments(self) -> list[str]:
        return [
            str(self._assets.etcd),
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
        ]

    def _apiserver_arguments(self) -> list[str]:
        tokens, key = self._directory / "tokens.csv", self._directory / "service-account.key"
        tokens.write_text(f'{self._token},lab,lab,"system:masters"\n')
        subprocess.run(("openssl", "genrsa", "-out", str(key), "2048"), check=True, capture_output=True)
        ranges = ",".join(str(LAB.service_cidr[family]) for family in Family)
        return [
            str(self._assets.kube_apiserver),
            f"--etcd-servers={_ETCD}",
            f"--service-cluster-ip-range={ranges}",
            "--service-node-port-range=1-65535",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--cert-dir={self._directory / 'certificates'}",
            "--bind-address=127.0.0.1",
            f"--advertise-address={LAB.node_address['a'][Family.IPV4]}",
            f"--secure-port={PORT}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=AlwaysAllow",
            "--disable-admission-plugins=ServiceAccount",
        ]

    async def _serving(self) -> None:
        deadline = time.monotonic() + START_PATIENCE
        while not await self._ready():
            ended = next((p for p in self._processes if p.returncode is not None), None)
            if ended is not None or time.monotonic() > deadline:
                raise LabError(f"the lab's kube-apiserver does not serve: {self._tail(ended)}")
            await asyncio.sleep(0.1)

    async def _ready(self) -> bool:
        certificate = self._directory / "certificates" / "apiserver.crt"
        if not certificate.exists():
            return False
        self._authority = certificate.read_bytes()
        try:
            tls = client_context(cadata=self._authority.decode())
        except ssl.SSLError:
            return False  # the file is being written
        connect = partial(on_loopback, self._namespace, PORT, tls)
        self.store = KubeStore(connect, lambda: {"Authorization": f"Bearer {self._token}"})
        self._connections.callback(self.store.close)
        return await asyncio.to_thread(self.store.ready)

    def _tail(self, ended: Process | None) -> str:
        log = (ended or self._processes[-1]).log
        return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_TAIL:])
