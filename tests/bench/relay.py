"""The relay beside others: one client, one server, and between them a node with everything that is compared, in one run.

A plain relay of asyncio streams, Debian's socat and haproxy, the kernel's translation by iptables and nftables mode, and no proxy at all.
All stand on the node at the same time and get their connections in turns, so what else the machine does meets all alike; the best turn of each
counts, as a relation to the direct way.  Memory is that of the relay's processes (proportional set size) for each open connection.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kproxy.lab import namespaces
from kproxy.lab.namespaces import LabError, Namespace
from kproxy.lab.processes import kill_in
from kproxy.model.network import Family
from kproxy.proxy.backends.iptables.kernel import IptablesKernel, find_tools, machine_options
from kproxy.proxy.backends.nftables.kernel import NftablesKernel
from kproxy.proxy.backends.nftables.kernel import machine_options as nftables_options
from kproxy.proxy.backends.userspace.kernel import UserspaceKernel
from kproxy.proxy.daemon.sync.relaying import PortalDataplane
from kproxy.proxy.plan import Exposure, Plan
from kproxy.proxy.relay.portals import Portals
from kproxy.proxy.relay.workers import WorkerRelay
from tests.support.plans import frontend, plan_of, pool, service
from tests.support.relay_ends import memory_of

ENDS = (sys.executable, "-m", "tests.support.relay_ends")
CLIENT, NODE, NODE_TO_SERVER, SERVER, PORT = "192.0.2.2", "192.0.2.1", "198.51.100.1", "198.51.100.2", 9000
DIRECT = "no proxy"
MEBIBYTE = 1 << 20
TURNS, CONNECTS, THREADS, STREAMS, STREAMED, HELD = 2, 400, 4, 2, 64 * MEBIBYTE, 400
_WORKER = "kproxy.proxy.relay"
_HAPROXY = """
global
    maxconn 4000
defaults
    mode tcp
    timeout connect 5s
    timeout client 5m
    timeout server 5m
listen relay
    bind {node}:{port}
    server only {server}
"""
_ASYNCIO = """
import asyncio, sys
async def copy(source, target):
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    target.write_eof()
async def relay(reader, writer):
    r, w = await asyncio.open_connection(sys.argv[3], int(sys.argv[4]))
    await asyncio.gather(copy(reader, w), copy(r, writer), return_exceptions=True)
    w.close(); writer.close()
async def main():
    server = await asyncio.start_server(relay, sys.argv[1], int(sys.argv[2]), backlog=1024)
    await server.serve_forever()
asyncio.run(main())
"""


@dataclass(slots=True)
class Way:
    """A way to the server: its address, the processes that relay, and what was measured."""

    name: str
    address: str
    port: int
    processes: Callable[[], Sequence[int]] = tuple
    connects: list[float] = field(default_factory=list)
    """Connections in a second, by turn."""
    streamed: list[float] = field(default_factory=list)
    """Mebibytes in a second."""
    memory: float | None = None
    """KiB for each open connection; None where no process relays."""


def run(console: Console, results: Path) -> int:
    """Measure and report; 0, or 2 where this machine cannot."""
    if missing := [tool for tool in ("socat", "haproxy") if shutil.which(tool) is None]:
        console.print(
            f"missing: {', '.join(missing)}; type: apt-get install -y {' '.join(missing)}", style="red"
        )
        return 2
    try:
        with _stage() as (client, ways):
            for turn in range(TURNS):
                for one in ways:
                    console.print(f"turn {turn + 1}: {one.name}", style="dim")
                    _measure(client, one)
            for one in ways:
                one.memory = _memory(client, one) if one.processes() else None
    except LabError as reason:
        console.print(str(reason), style="red")
        return 2
    _show(console, ways)
    results.mkdir(parents=True, exist_ok=True)
    rows = {one.name: [one.connects, one.streamed, one.memory] for one in ways}
    load = " ".join(f"{load:.0f}" for load in os.getloadavg())
    (results / "relay.json").write_text(json.dumps({"load": load, "processors": os.cpu_count(), **rows}))
    console.print(f"load {load}, {os.cpu_count()} processors", highlight=False)
    return 0


def _measure(client: Namespace, one: Way) -> None:
    made = _client(client, "connect", one.address, one.port, CONNECTS, THREADS)
    if made["failures"]:
        raise LabError(f"{one.name}: {made['failures']:.0f} of {CONNECTS} connections failed")
    one.connects.append(CONNECTS / made["seconds"])
    streamed = _client(client, "stream", one.address, one.port, STREAMED, STREAMS)
    one.streamed.append(STREAMS * STREAMED / MEBIBYTE / streamed["seconds"])


def _memory(client: Namespace, one: Way) -> float:
    before = memory_of(one.processes())
    pipe = subprocess.PIPE
    command = [*ENDS, "client", "hold", one.address, str(one.port), str(HELD)]
    held = client.start(command, stdin=pipe, stdout=pipe)
    assert held.stdout
    assert held.stdin
    if (found := json.loads(held.stdout.readline()))["open"] != HELD:
        raise LabError(f"{one.name}: of {HELD} connections {found['open']} could be held")
    used = memory_of(one.processes()) - before
    held.communicate(b"\n")
    return used / HELD / 1024


def _client(namespace: Namespace, *arguments: object) -> Mapping[str, float]:
    answer: Mapping[str, float] = json.loads(namespace.run([*ENDS, "client", *map(str, arguments)]))
    return answer


def _running(node: Namespace, text: str) -> Sequence[int]:
    """Processes inside with that text in their command line."""
    inside, found = Path(node.path).stat().st_ino, []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if text in command and (entry / "ns/net").stat().st_ino == inside:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@contextmanager
def _stage() -> Iterator[tuple[Namespace, list[Way]]]:
    """Client, node and server in a row, and everything that is compared on the node."""
    client, node, server = (namespaces.create_namespace(name) for name in ("client", "node", "server"))
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="kproxy-bench-") as name:
        os.environ["RUNTIME_DIRECTORY"] = name
        try:
            _wire(client, node, server)
            running.append(server.start([*ENDS, "server", SERVER, str(PORT)], stdout=subprocess.DEVNULL))
            with node.entered():
                ways = [*_kernel_modes(node, Path(name))]
            ways += _others(node, Path(name), running)
            time.sleep(1)
            yield client, [Way(DIRECT, SERVER, PORT), *ways]
        finally:
            for each in running:
                each.kill()
                each.wait()
            for text in ("socat", _WORKER):
                kill_in(node, text)
            for each_namespace in (client, node, server):
                each_namespace.close()


def _wire(client: Namespace, node: Namespace, server: Namespace) -> None:
    for other, near, far in ((client, NODE, CLIENT), (server, NODE_TO_SERVER, SERVER)):
        link = f"to-{other.name}"[:15]
        node.run(("ip", "link", "add", link, "type", "veth", "peer", "name", "up0", "netns", other.path))
        for namespace, device, address in ((node, link, near), (other, "up0", far)):
            namespace.run(("ip", "addr", "add", f"{address}/24", "dev", device))
            namespace.run(("ip", "link", "set", device, "up"))
        other.run(("ip", "route", "add", "default", "via", near))
    node.run(("ip", "link", "set", "lo", "up"))
    node.run(("sysctl", "-qw", "net.ipv4.ip_forward=1"))


def _kernel_modes(node: Namespace, folder: Path) -> Iterator[Way]:
    tools = find_tools(Family.IPV4, None, {"XTABLES_LOCKFILE": str(folder / "lock")})
    IptablesKernel(tools).apply(_plan("10.96.0.1"), machine_options(tools, 14))
    yield Way("kproxy, iptables mode", "10.96.0.1", 80)
    NftablesKernel(Family.IPV4, nftables_options(14)).apply(_plan("10.96.0.2"))
    yield Way("kproxy, nftables mode", "10.96.0.2", 80)
    rules = UserspaceKernel(Family.IPV4, keep_sources=False)
    plane = PortalDataplane(rules, WorkerRelay(Family.IPV4), Portals(), lambda: [ip_address(NODE)])
    plane.apply(_plan("10.96.0.3"))
    yield Way("kproxy, userspace mode", "10.96.0.3", 80, lambda: _running(node, _WORKER))


def _plan(address: str) -> Plan:
    only = frontend(Exposure.CLUSTER_IP, address, 80, pool(f"{SERVER}:{PORT}"))
    return plan_of(service(only), family=Family.IPV4, detector=None)


def _others(node: Namespace, folder: Path, running: list[subprocess.Popen[bytes]]) -> Iterator[Way]:
    file = folder / "haproxy.cfg"
    file.write_text(_HAPROXY.format(node=NODE, port=9003, server=f"{SERVER}:{PORT}"))
    listen = f"TCP-LISTEN:9002,bind={NODE},fork,reuseaddr,backlog=1024"
    commands: Mapping[str, tuple[int, str, Sequence[str]]] = {
        "asyncio": (9001, "asyncio", (sys.executable, "-c", _ASYNCIO, NODE, "9001", SERVER, str(PORT))),
        "socat": (9002, "socat", ("socat", listen, f"TCP:{SERVER}:{PORT}")),
        "haproxy": (9003, "haproxy", ("haproxy", "-f", str(file))),
    }
    for name, (port, text, command) in commands.items():
        running.append(node.start(command, stderr=subprocess.DEVNULL))
        yield Way(name, NODE, port, lambda text=text: _running(node, text))  # type: ignore[misc]


def _show(console: Console, ways: Sequence[Way]) -> None:
    table = Table("", "connections/s", "", "MiB/s", "", "KiB for a connection")
    first = ways[0]
    for one in ways:
        connects, streamed = max(one.connects), max(one.streamed)
        table.add_row(
            one.name,
            f"{connects:.0f}",
            f"{connects / max(first.connects):.2f}",
            f"{streamed:.0f}",
            f"{streamed / max(first.streamed):.2f}",
            "" if one.memory is None else f"{one.memory:.1f}",
        )
    console.print(table)
