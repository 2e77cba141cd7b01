"""A daemon by kubeadm's ConfigMap and DaemonSet, unchanged: only the program is another.

The kubelet's part is done as the kubelet does it: a folder with links for the ConfigMap, token and CA of the ServiceAccount, the
node's name in the arguments.  In a mount namespace of its own, so that the paths are those of the files; what belongs to the
whole machine there, the limit of tracked connections, is a file of the test's.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from pathlib import Path

from kproxy.lab.processes import listen_in, spawn
from kproxy.lab.topology import LAB
from tests.support import kubeadm
from tests.support.api_stage import ADDRESS, PORT, ApiStage, open_api_stage
from tests.support.certificates import make
from tests.support.daemon_stage import HEALTH_PORT, METRICS_PORT, fetch

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
CONNECTIONS = "/proc/sys/net/netfilter/nf_conntrack_max"
OF_THE_MACHINE = (CONNECTIONS, "/sys/module/nf_conntrack/parameters/hashsize")
MOUNT = """\
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /run
while [ "$1" != -- ]; do
    [ -e "$2" ] || mkdir -p "$2"
    mount --bind "$1" "$2"
    shift 2
done
shift
exec "$@"
"""
"""Arguments: what to mount and where, in pairs; ``--``; the program.  A mount that fails ends it."""
USUAL = ("nodePortAddresses is unset", "oom_score_adj is not -999")
"""What may be warned of: kube-proxy logs the former too (``cfg.badconfig-warn``), the latter where root may not do all."""


def config_map(folder: Path) -> Path:
    """As a volume: files are links into a folder that is itself behind a link, which an update exchanges."""
    data = folder / "..2026_01_01"
    data.mkdir(parents=True)
    (folder / "..data").symlink_to(data.name)
    for name, text in kubeadm.FILES.items():
        (data / name).write_text(text)
        (folder / name).symlink_to(f"..data/{name}")
    return folder


def account(made: ApiStage) -> Path:
    """As a projected volume: a token, and the CA of the API server."""
    folder = made.folder / "account"
    folder.mkdir()
    (folder / "token").write_text("of-the-account")
    (made.folder / "ca.crt").rename(folder / "ca.crt")
    return folder


def of_the_machine(folder: Path) -> dict[str, Path]:
    """Stand-ins."""
    files = {path: folder / Path(path).name for path in OF_THE_MACHINE}
    for path, file in files.items():
        file.write_text(Path(path).read_text())
    return files


def start(made: ApiStage, mounts: dict[str, Path]) -> None:
    """The DaemonSet's container on node a."""
    pairs = [word for place, source in mounts.items() for word in (str(source), place)]
    program = [sys.executable, "-m", "kproxy", "run", *kubeadm.arguments(LAB.hostnames["a"])]
    arguments = [
        "unshare",
        "--mount",
        "--propagation=private",
        "sh",
        "-ec",
        MOUNT,
        "sh",
        *pairs,
        "--",
        *program,
    ]
    made.daemon = spawn(arguments, made.namespace, log=made.folder / "log")


async def serve(made: ApiStage) -> None:
    """The API server, by TLS."""
    make(made.folder, f"IP:{ADDRESS}", "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.folder / "server.crt", made.folder / "server.key")
    await made.server.listen([listen_in(made.namespace, ADDRESS, PORT)], ssl_context=context)


def warnings(made: ApiStage) -> list[str]:
    return [line for line in (made.folder / "log").read_text().splitlines() if line.startswith(("W", "E"))]


async def get(made: ApiStage, port: int, path: str) -> str:
    reply = await asyncio.to_thread(fetch, made.namespace, ADDRESS, port, path)
    assert reply.status == 200
    return reply.body


def test_kubeadms_config_map_and_daemon_set_run_the_daemon_unchanged() -> None:
    async def run() -> None:
        async with open_api_stage() as made:
            await serve(made)
            made.listing = ("iptables-save", "-t", "nat")
            stand_ins = of_the_machine(made.folder)
            volumes = {kubeadm.MOUNTED_AT: config_map(made.folder / "files"), ACCOUNT: account(made)}
            start(made, volumes | stand_ins)
            await made.follows(1)
            assert set(made.tokens()) == {"Bearer of-the-account"}
            limit = max(131072, 32768 * (os.cpu_count() or 1))
            assert stand_ins[CONNECTIONS].read_text() == str(limit)
            assert json.loads(await get(made, HEALTH_PORT, "/healthz"))["healthy"]
            assert await get(made, METRICS_PORT, "/proxyMode") == "iptables"
            assert not [line for line in warnings(made) if not any(usual in line for usual in USUAL)]

    asyncio.run(run())
