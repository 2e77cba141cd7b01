"""The daemon and an API server that wants proof: TLS both ways by a CA of its own, tokens, plugins; all of it renewed.

Sources: client-go reads certificates and tokens again when their files change, and runs a plugin again when its credential ends
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins).
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from kproxy.lab.processes import listen_in
from tests.support.api_stage import ADDRESS, PORT, ApiStage, open_api_stage
from tests.support.certificates import make

PLUGIN = """\
#!/bin/sh
[ "$KUBERNETES_EXEC_INFO" ] || exit 1
ends=$(date -u -d "+31 seconds" +%Y-%m-%dT%H:%M:%SZ)
printf '{"kind": "ExecCredential", "status": {"token": "%s", "expirationTimestamp": "%s"}}' "$(cat FOLDER/current)" "$ends"
"""


def both_ways(folder: Path) -> ssl.SSLContext:
    """The server's side: it wants a certificate of its CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def listen_with_tls(made: ApiStage) -> None:
    """Tokens are sent by TLS only."""
    make(made.folder, f"IP:{ADDRESS}", "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.folder / "server.crt", made.folder / "server.key")
    await made.server.listen([listen_in(made.namespace, ADDRESS, PORT)], ssl_context=context)


CLUSTER = {"server": f"https://{ADDRESS}:{PORT}", "certificate-authority": "ca.crt"}


def test_certificates_of_both_sides_and_their_authority_are_renewed_without_a_restart() -> None:
    async def renew() -> None:
        async with open_api_stage() as made:
            old, new = made.folder, made.folder / "new"
            new.mkdir()
            for folder in (old, new):
                make(folder, f"IP:{ADDRESS}", "server", "client")
            await made.server.listen([listen_in(made.namespace, ADDRESS, PORT)], ssl_context=both_ways(old))
            made.start(
                user={"client-certificate": "client.crt", "client-key": "client.key"},
                cluster=dict(CLUSTER),
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
        async with open_api_stage() as made:
            token = made.folder / "token"
            token.write_text("old")
            await listen_with_tls(made)
            made.start(user={"tokenFile": "token"}, cluster=dict(CLUSTER))
            await made.follows(1)
            assert set(made.tokens()) == {"Bearer old"}
            token.write_text("new")
            made.server.drop_watches()
            await made.follows(2)
            assert made.tokens()[-1] == "Bearer new"

    asyncio.run(renew())


def test_a_plugin_is_run_again_when_what_it_gave_has_ended() -> None:
    async def renew() -> None:
        async with open_api_stage() as made:
            current, plugin = made.folder / "current", made.folder / "plugin"
            current.write_text("first")
            plugin.write_text(PLUGIN.replace("FOLDER", str(made.folder)))
            plugin.chmod(0o755)
            await listen_with_tls(made)
            made.start(user={"exec": {"command": "./plugin"}}, cluster=dict(CLUSTER))
            await made.follows(1)
            assert set(made.tokens()) == {"Bearer first"}
            current.write_text("second")
            await asyncio.sleep(2.1)
            made.server.drop_watches()
            await made.follows(2)
            assert made.tokens()[-1] == "Bearer second"

    asyncio.run(renew())
