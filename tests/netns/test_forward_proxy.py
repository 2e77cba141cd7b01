"""A daemon whose API server, by TLS, is reached through proxies of other projects: by kubeconfig, and by environment."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kproxy.lab.namespaces import LabError
from kproxy.lab.processes import listen_in, run_in, spawn
from kproxy.model.network import parse_address
from tests.support.api_stage import PORT, ApiStage, open_api_stage
from tests.support.certificates import make
from tests.support.forward_proxies import http_command, socks_command
from tests.support.waiting import eventually

SERVER = "192.0.2.1"
"""Not an address of loopback, which the environment's proxy is not used for."""
PROXY_PORT = 3128


@dataclass(frozen=True)
class Way:
    """``protocol`` of the proxy, its options, what names it, and the line of its log about a tunnel."""

    protocol: str
    options: tuple[str, ...] = ()
    cluster: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    is_used: bool = True


WAYS = {
    "proxy-url http": Way("http", cluster={"proxy-url": f"http://127.0.0.1:{PROXY_PORT}"}),
    "proxy-url socks5 with a user": Way(
        "socks5",
        ("-u", "user", "-P", "secret"),
        {"proxy-url": f"socks5://user:secret@127.0.0.1:{PROXY_PORT}"},
    ),
    "HTTPS_PROXY": Way("http", environment={"HTTPS_PROXY": f"http://127.0.0.1:{PROXY_PORT}"}),
    "HTTPS_PROXY and NO_PROXY": Way(
        "http",
        environment={"HTTPS_PROXY": f"http://127.0.0.1:{PROXY_PORT}", "NO_PROXY": "192.0.2.0/24"},
        is_used=False,
    ),
}


async def serve(made: ApiStage) -> None:
    await asyncio.to_thread(made.namespace.run, ("ip", "address", "add", f"{SERVER}/32", "dev", "lo"))
    make(made.folder, f"IP:{SERVER}", "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.folder / "server.crt", made.folder / "server.key")
    address = parse_address(SERVER)
    assert address
    await made.server.listen([listen_in(made.namespace, address, PORT)], ssl_context=context)


async def answers(made: ApiStage) -> None:
    """Wait for the proxy."""
    script = f"exec 3<>/dev/tcp/127.0.0.1/{PROXY_PORT}"
    async with asyncio.timeout(20):
        while True:
            with suppress(LabError):
                await run_in(made.namespace, ("bash", "-c", script))
                return
            await asyncio.sleep(0.1)


def command(way: Way, folder: Path) -> list[str]:
    if way.protocol == "http":
        return http_command(folder, PROXY_PORT, *way.options)
    return socks_command(PROXY_PORT, *way.options)


@pytest.mark.parametrize("name", WAYS)
def test_the_daemon_follows_its_api_server_through_a_proxy(name: str) -> None:
    async def run(way: Way) -> None:
        async with open_api_stage() as made:
            await serve(made)
            log = made.folder / "proxy.log"
            proxy = spawn(command(way, made.folder), made.namespace, log=log)
            try:
                await answers(made)
                cluster: dict[str, object] = {
                    "server": f"https://{SERVER}:{PORT}",
                    "certificate-authority": "ca.crt",
                    **way.cluster,
                }
                made.start(user={"token": "t"}, cluster=cluster, environment=way.environment)
                await made.follows(1)
                assert set(made.tokens()) == {"Bearer t"}
                assert made.daemon
                made.daemon.kill()  # a proxy may write of a connection when it ends
                patience = 10.0 if way.is_used else 0.5
                seen = await asyncio.to_thread(eventually, lambda: SERVER in log.read_text(), patience)
                assert seen == way.is_used
            finally:
                proxy.kill()
                await proxy.wait()
            assert ("is reached by the proxy" in (made.folder / "log").read_text()) == way.is_used

    asyncio.run(run(WAYS[name]))
