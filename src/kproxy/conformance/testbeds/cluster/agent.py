"""Agent: program of a pod of the cluster testbed. ``python -m kproxy.conformance.testbeds.cluster.agent``.

One process in the pod's own network namespace, with the lab's probes, servers and captures in it. It executes
commands that come by HTTP, one message each, from clients with its key, and does nothing of its own accord; it opens
no connection of its own and writes nothing. Needs CAP_NET_ADMIN (a SYN's number) and CAP_NET_RAW (captures).
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import os
import signal
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from aiohttp import web

from kproxy.conformance.testbeds.cluster import messages, wire
from kproxy.conformance.testbeds.evidence import state
from kproxy.lab.captures import packet_marks
from kproxy.lab.lab import Lab, LabFlow, allow_many_files
from kproxy.lab.namespaces import CurrentNamespace, LabError
from kproxy.lab.network import Network
from kproxy.lab.probes import echo, http
from kproxy.lab.probes.observation import Observation, ProbeRequest
from kproxy.model.network import Address

KEY = "KPROXY_AGENT_KEY"
"""Environment variable with the key."""
KEY_HEADER = "X-Kproxy-Key"
"""Header with the key; the API server's proxy keeps ``Authorization`` for itself."""
PATH = "/ask"
NUMBERS_EACH = 1 << 24
"""Number of probe numbers for each agent, so that no two agents use the same."""
_LARGEST_MESSAGE = 1 << 22
_HOME = Path("/usr/sbin")


class Agent:
    """Executes commands; ``name``: its name in the lab, ``index``: a distinct number for each agent."""

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.here = CurrentNamespace(name)
        self.lab = Lab(Network([self.here]), (name,), index * NUMBERS_EACH)
        self._flows: dict[str, LabFlow] = {}

    async def execute(self, command: object) -> object:  # noqa: C901, PLR0911 (a line or two for each command)
        """Execute a command and return the reply."""
        match command:
            case messages.Hello():
                return self._begin()
            case messages.Serve(listeners=listeners):
                return messages.Served(tuple(filter(None, map(self._serve, listeners))))
            case messages.SendProbes(request=request, count=count, mark=mark):
                probes = (self._probe(request, mark) for _ in range(count))
                return messages.ProbesSent(tuple(await asyncio.gather(*probes)))
            case messages.SendPing(request=request):
                echoed, number = await echo.send_ping(self.lab, request)
                return messages.Pinged(number, echoed)
            case messages.Get(request=request, path=path):
                return messages.Got(await http.http_get(self.lab, request, path))
            case messages.OpenFlow(request=request, flow=name):
                return self._exchanged(name, *await self.lab.open_flow(request))
            case messages.Exchange(flow=name, patience=patience):
                flow = self._flows[name]
                seen = await flow.exchange(patience)
                return messages.Exchanged(flow.last, seen, flow.own)
            case messages.ReopenFlow(flow=name, patience=patience):
                return self._exchanged(name, *await self.lab.reconnect(self._flows[name], patience))
            case messages.ReadEvidence(numbers=numbers):
                return messages.ProbeEvidence(tuple(map(self.lab.evidence, numbers)))
            case messages.ReadState():
                return messages.NodeState({k: v for k, v in (await self._rule_texts()).items() if v})
            case _:
                return self._act(command)

    def _begin(self) -> messages.About:
        """Begin a run: flows that an earlier one left are closed, or their ports would be taken."""
        for flow in self._flows.values():
            flow.close()
        self._flows = {}
        redirects = redirect_sysctls(self.here)
        return messages.About(self.name, tuple(_addresses(self.here)), _has_sctp(self.here), redirects)

    def _act(self, command: object) -> messages.Done | messages.Wrong:
        match command:
            case messages.HangUp(number=number):
                self.lab.close_server_end(number)
            case messages.CloseListener(number=number, protocol=protocol):
                with suppress(LabError):
                    self.lab.close_listener(number, protocol)
            case messages.Forget():
                self.lab.captures.drain()
                self.lab.captures.forget_all()
            case _:
                return messages.Wrong(f"{type(command).__name__} is no command")
        return messages.Done()

    async def handle(self, request: web.Request) -> web.Response:
        """Handle one message; 403 without the key."""
        if not hmac.compare_digest(request.headers.get(KEY_HEADER, ""), os.environ.get(KEY, "")):
            raise web.HTTPForbidden(text="without the key of this run the agent does nothing")
        try:
            answer = await self.execute(wire.decode_agent_message(await request.read()))
        except wire.BadMessage as reason:
            raise web.HTTPBadRequest(text=f"no message of ours: {reason}") from reason
        except (OSError, KeyError, LabError) as error:
            answer = messages.Wrong(f"{type(error).__name__}: {error}")
        return web.Response(body=wire.encode_agent_message(answer), content_type="application/json")

    def close(self) -> None:
        """Close all sockets and flows."""
        self.lab.close()

    def _serve(self, listener: messages.Listener) -> str:
        where = (listener.port, listener.protocol, listener.who)
        try:
            if listener.addresses:
                self.lab.servers.serve(self.here, *where, listener.addresses)
            else:
                self.lab.servers.serve(self.here, *where)
        except OSError as error:
            return f"{self.name} cannot listen on {listener.port}/{listener.protocol.value}: {error.strerror}"
        return ""

    async def _probe(self, request: ProbeRequest, mark: int) -> messages.Seen:
        if mark:
            traced, left_with = await packet_marks.probe_marked(self.lab, request, mark)
            return messages.Seen(traced.number, traced.observation, traced.evidence, left_with)
        traced = await self.lab.trace(request)
        return messages.Seen(traced.number, traced.observation, traced.evidence)

    def _exchanged(self, name: str, flow: LabFlow | None, seen: Observation) -> messages.Exchanged:
        if flow is None:
            return messages.Exchanged(0, seen, None)
        self._flows[name] = flow
        return messages.Exchanged(flow.last, seen, flow.own)

    async def _rule_texts(self) -> dict[str, str]:
        return {
            **await state.node_rules(self.lab, self.name, _HOME),
            **await state.node_surroundings(self.lab, self.name, _HOME),
        }


def _addresses(here: CurrentNamespace) -> list[Address]:
    """Addresses of all interfaces, from /proc: the image has no program for it."""
    six = (ip_address(int(line[:32], 16).to_bytes(16, "big")) for line in _lines(here, "if_inet6"))
    return [
        address for address in (*parse_fib_trie(_lines(here, "fib_trie")), *six) if not address.is_loopback
    ]


def redirect_sysctls(here: CurrentNamespace, root: Path = Path("/proc/sys/net")) -> tuple[str, ...]:
    """Sysctls by which this network takes routes from redirects.

    IPv4: a host does so if that of all interfaces or the interface's own is set, a router if both are. IPv6: the
    interface's own decides, and a router takes none (https://docs.kernel.org/networking/ip-sysctl.html).
    """
    without = {"ipv4": {"default", "lo"}, "ipv6": {"default", "lo", "all"}}
    with here.entered():
        files = [file for version in without for file in root.glob(f"{version}/conf/*/accept_redirects")]
        on = [file.relative_to(root).parts for file in files if file.read_text().strip() != "0"]
    return tuple(
        sorted(
            f"net.{version}.conf.{interface}.accept_redirects"
            for version, _, interface, _ in on
            if interface not in without[version]
        )
    )


def _lines(here: CurrentNamespace, name: str) -> list[str]:
    try:
        return here.read(f"/proc/thread-self/net/{name}").splitlines()
    except OSError:  # no IPv6
        return []


def parse_fib_trie(trie: Iterable[str]) -> list[Address]:
    """The node's own IPv4 addresses in the lines of ``/proc/net/fib_trie``: leaves with a /32 route of type LOCAL."""
    found: dict[Address, None] = {}
    leaf = ""
    for line in trie:
        fields = line.split()
        if fields[0] == "|--":
            leaf = fields[1]
        elif fields == ["/32", "host", "LOCAL"]:
            found[ip_address(leaf)] = None
    return list(found)


def _has_sctp(here: CurrentNamespace) -> bool:
    try:
        here.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError:
        return False
    return True


async def serve_agent(name: str, index: int, port: int) -> None:
    """Serve on a port of every address, until SIGTERM."""
    allow_many_files()
    agent = Agent(name, index)
    application = web.Application(client_max_size=_LARGEST_MESSAGE)
    application.router.add_post(PATH, agent.handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port, reuse_address=True).start()
        over = asyncio.Event()  # SIGTERM ends a container's first process only if it has a handler
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        await over.wait()
    finally:
        await runner.cleanup()
        agent.close()


def agent_main(arguments: Sequence[str] | None = None) -> None:
    """Run an agent; arguments: ``NAME INDEX PORT``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("index", type=int)
    parser.add_argument("port", type=int)
    arguments_parsed = parser.parse_args(arguments)
    if not os.environ.get(KEY):
        parser.error(f"{KEY} is not set: an agent without a key would serve anybody")
    with suppress(KeyboardInterrupt):
        asyncio.run(serve_agent(arguments_parsed.name, arguments_parsed.index, arguments_parsed.port))


if __name__ == "__main__":
    agent_main()
