"""``kproxy lab up``: a replica that runs until it is stopped, and serves other commands by a control socket.

The socket has a name in the kernel only (unix(7), abstract), so nothing is left when the process ends, however it
does. A client must be the same user. ``exec`` gets the descriptors of the namespaces: the program is the client's own
child.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from kproxy.conformance.generate.from_dump import PROBE_POD
from kproxy.conformance.subjects.subject import InvalidSubject
from kproxy.conformance.testbed import HarnessError, SubjectFailed
from kproxy.documents import TEXT, print_document
from kproxy.lab.kernels.abilities import KernelName
from kproxy.lab.kernels.current import kernel_here
from kproxy.lab.namespaces import LabError
from kproxy.lab.probes.observation import Reception
from kproxy.lab.topology import CLIENT, ELSEWHERE, REMOTE, Pair, Topology
from kproxy.linux.sockets import user_of_peer
from kproxy.options.tools import DEFAULT_LAB
from kproxy.tools.explain.dump import Dump
from kproxy.tools.lab_session.control_socket import control_address
from kproxy.tools.lab_session.kernel import restart_in_kernel
from kproxy.tools.lab_session.lab import ProxySetup, Replica, open_replica
from kproxy.tools.lab_session.layout import BEYOND, CannotCopy, pod_label, replica_topology
from kproxy.tools.lab_session.options import (
    ReplicaOptions,
    load_dump,
    oracle_settings,
    proxy_setup,
    require_tools,
    resolve_subject,
)

CANNOT = 2
CONTROL = "KPROXY_LAB_CONTROL"
"""Environment variable with the listening socket's descriptor, for a process restarted in another kernel."""

_WATCH_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """Options of the command line."""

    proxy: str
    binary: str
    cluster: ReplicaOptions
    name: str = DEFAULT_LAB
    kernel: str = "auto"
    form: str = TEXT
    arguments: Sequence[str] = ()


def run_lab_up(options: UpOptions) -> int:
    """Build the lab and serve; 0 when it was stopped, 2 when it cannot be built."""
    try:
        subject, mode = resolve_subject(options.proxy, options.binary)
        oracle_settings(options.cluster)  # ranges are checked here, before anything is built
        control = _control(options.name)
        allowed = {KernelName.HOST, KernelName.ROOTLESS}
        away = restart_in_kernel(options.kernel, [mode], options.arguments, options.cluster.iptables, allowed)
        assert away is None  # these two kernels are this process's own
        require_tools()
        dump = load_dump(options.cluster)
        place = replica_topology(dump, options.cluster.nodes, together=False)
        order = replace(proxy_setup(options.cluster, subject, mode), daemons=False)
        asyncio.run(_stay(dump, place, order, control, options.form))
    except (CannotCopy, InvalidSubject, LabError, HarnessError, SubjectFailed) as reason:
        sys.stderr.write(f"kproxy lab up: {reason}\n")
        return CANNOT
    return 0


def _control(name: str) -> socket.socket:
    """Listening socket, inherited or new. A process in a user namespace could not bind it for those outside."""
    if CONTROL in os.environ:
        return socket.socket(fileno=int(os.environ.pop(CONTROL)))
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        control.bind(control_address(name))
    except OSError as error:
        raise CannotCopy(
            f"a lab called {name} runs already: `kproxy lab down` ends it, --name gives this one another name"
        ) from error
    control.listen()
    control.set_inheritable(True)
    os.environ[CONTROL] = str(control.fileno())
    return control


# --------------------------------------------------------------------------- staying


async def _stay(dump: Dump, place: Topology, order: ProxySetup, control: socket.socket, form: str) -> None:
    os.environ.pop(CONTROL, None)
    control.setblocking(False)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    opening = asyncio.create_task(_open(dump, place, order, control, ended, form))
    waiting = asyncio.create_task(ended.wait())
    await asyncio.wait({opening, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():
        opening.cancel()
    waiting.cancel()
    try:
        await opening
    except asyncio.CancelledError:
        return


async def _open(
    dump: Dump,
    place: Topology,
    order: ProxySetup,
    control: socket.socket,
    ended: asyncio.Event,
    form: str,
) -> None:
    async with open_replica(dump, place, order) as replica:
        await replica.remove_sentinels()
        replica.lab.servers.greet = CurlReply(dump)
        desk = ControlServer(dump, replica, ended)
        serving = asyncio.create_task(desk.serve(control))
        if form == TEXT:
            sys.stdout.write(lab_summary(dump, replica))
            sys.stdout.flush()
        else:
            print_document(lab_document(dump, replica), form)
        try:
            await _watch(replica)
        finally:
            serving.cancel()


async def _watch(replica: Replica) -> None:
    """Report, once, a proxy that has ended by itself; the lab stays for inspection."""
    while True:
        await asyncio.sleep(_WATCH_SECONDS)
        try:
            replica.proxies.check()
        except (HarnessError, SubjectFailed) as reason:
            sys.stderr.write(f"kproxy lab up: {reason}\n")
            await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class CurlReply:
    """Reply to curl: the server's name, and the source it saw."""

    dump: Dump

    def __call__(self, seen: Reception) -> str:
        """Line of text for a request."""
        pod = self.dump.pod_at(seen.at.address)
        if seen.who == ELSEWHERE:
            return f"elsewhere: the packet has left the cluster, source {seen.peer}\n"
        who = str(pod) if pod else "an endpoint"
        return f"{who} at {seen.at}, source {seen.peer}\n"


def lab_summary(dump: Dump, replica: Replica) -> str:
    """Text about the lab's places, and commands to use it."""
    place, order = replica.topology, replica.order
    nodes = [
        f"  node/{name}  {', '.join(map(str, place.node_address[n].values()))}"
        for n, name in place.hostnames.items()
    ]
    pods = ", ".join(f"{len(place.pods[n]) - 1} pods on {name}" for n, name in place.hostnames.items())
    own = len(place.families)  # the first addresses beyond are those of its link
    clients = [
        f"  {name}, {where}: {', '.join(f'{_text(pair)} through {place.hostnames[n]}' for n, pair in out.items())}"
        for name, where, out in (
            (CLIENT, "a neighbour of the nodes", place.client_address),
            (REMOTE, "one hop away", place.remote_address),
        )
    ]
    lines = [
        f"{order.subject.name} in {order.mode} mode serves {len(dump.cluster.services)} Services on",
        *nodes,
        f"with {pods}, {len(place.stubs[BEYOND].addresses) - own} addresses beyond the router, and clients",
        *clients,
        *(f"no server could listen for endpoint {deaf}" for deaf in replica.unserved),
        "from another shell: kproxy lab exec pod/NAME -- curl ADDRESS, kproxy lab kubectl get svc, kproxy lab down",
    ]
    return "\n".join(lines) + "\n"


def lab_document(dump: Dump, replica: Replica) -> dict[str, object]:
    """The same as data."""
    place, order = replica.topology, replica.order
    clients = ((CLIENT, place.client_address), (REMOTE, place.remote_address))
    return {
        "schema": "kproxy-lab/1",
        "subject": order.subject.name,
        "mode": order.mode,
        "services": len(dump.cluster.services),
        "nodes": [
            {
                "name": name,
                "addresses": [str(address) for address in place.node_address[node].values()],
                "pods": [pod for pod in place.pods[node] if pod not in PROBE_POD.values()],
            }
            for node, name in place.hostnames.items()
        ],
        "clients": {
            client: {
                place.hostnames[node]: [str(address) for address in pair.values()]
                for node, pair in addresses.items()
            }
            for client, addresses in clients
        },
        "unserved": [str(endpoint) for endpoint in replica.unserved],
    }


def _text(pair: Pair) -> str:
    return " and ".join(map(str, pair.values()))


# --------------------------------------------------------------------------- control socket


class ControlServer:
    """Server of the control socket."""

    def __init__(self, dump: Dump, replica: Replica, ended: asyncio.Event) -> None:
        self._dump, self._replica, self._ended = dump, replica, ended
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, control: socket.socket) -> None:
        """Serve all clients, each in a task."""
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(control)
            client.setblocking(False)
            task = asyncio.create_task(self._serve_client(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve_client(self, client: socket.socket) -> None:
        """Handle one request; then the connection stays as long as the client keeps it."""
        loop = asyncio.get_running_loop()
        with client:
            if user_of_peer(client) not in {0, os.getuid()}:
                return
            request = msgspec.json.decode(await loop.sock_recv(client, 1 << 16))
            try:
                answer, descriptors = self._handle(request)
            except CannotCopy as reason:
                answer, descriptors = {"error": str(reason)}, []
            socket.send_fds(client, [msgspec.json.encode(answer)], descriptors)
            while await loop.sock_recv(client, 1):
                pass

    def _handle(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        match request:
            case {"do": "down"}:
                self._ended.set()
                return {}, []
            case {"do": "exec", "where": str(where)}:
                name = self.namespace(where)
                return self._environment(name), self._descriptors(name)
            case _:
                raise CannotCopy(
                    f"the lab does not understand {request}: is it of another version of kproxy?"
                )

    def namespace(self, where: str) -> str:
        """Namespace of ``pod/x``, ``node/y``, ``client`` or ``remote``. Raises `CannotCopy`."""
        kind, _, rest = where.partition("/")
        match kind:
            case "pod" if rest:
                return self._pod(rest)
            case "node" if rest:
                return self._node(rest)
            case _ if where in {CLIENT, REMOTE}:
                return where
            case _:
                raise CannotCopy(
                    f"{where}: give pod/NAME, pod/NAMESPACE/NAME, node/NAME, {CLIENT} or {REMOTE}"
                )

    def _node(self, name: str) -> str:
        hostnames = self._replica.topology.hostnames
        for node, hostname in hostnames.items():
            if name in {hostname, node}:
                return node
        there = " and ".join(hostnames.values())
        raise CannotCopy(f"node/{name}: the lab runs {there}; `kproxy lab up --node NAME` chooses others")

    def _pod(self, text: str) -> str:
        namespace, _, name = text.rpartition("/")
        alike = [p for p in self._dump.pods if p.name == name and namespace in {"", p.namespace}]
        place = self._replica.topology
        here = [pod for pod in place.all_pods if pod not in PROBE_POD.values()]
        if f"pod/{text}" in here:  # an endpoint without a pod, by its address
            return f"pod/{text}"
        if len(alike) > 1:
            raise CannotCopy(
                f"pod/{text}: ambiguous, name one of {' or '.join(sorted(pod_label(pod) for pod in alike))}"
            )
        if not alike:
            known = ", ".join(sorted(here)[:5])
            raise CannotCopy(f"pod/{text}: there is no such pod in the dump; there are {known} ...")
        if pod_label(alike[0]) in here:
            return pod_label(alike[0])
        node = place.namespace_of(alike[0].addresses[0]) if alike[0].addresses else ""
        if node in place.nodes:
            return node  # a pod of the host's network
        raise CannotCopy(
            f"pod/{text} is on node {alike[0].node or '(unknown)'}, which this lab does not run: "
            f"`kproxy lab up --node {alike[0].node or 'NAME'}`"
        )

    def _environment(self, name: str) -> dict[str, Any]:
        """Additional environment of a program there: the proxy's own iptables, and a kubeconfig."""
        nodes = self._replica.topology.nodes
        home = name if name in nodes else nodes[0]
        environment = {"KUBECONFIG": str(self._replica.directory / home / "kubeconfig.yaml")}
        return {"environment": environment, "path": str(self._replica.directory / "bin")}

    def _descriptors(self, name: str) -> list[int]:
        """Descriptors of user, mount and network namespace; the first two only where they are not the client's."""
        own: list[int] = []
        if kernel_here() is KernelName.ROOTLESS:
            own = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("user", "mnt")]
        return [*own, self._replica.lab.network[name].descriptor]
