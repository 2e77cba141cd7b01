"""Workloads in a cluster, in the Python of our image: a server, and a client that connects all the time and counts."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tests.kind.cluster import Cluster

PORT = 8080
PYTHON = "/usr/bin/python3"
LINGER = 6
"""Seconds that a server serves after SIGTERM, while rules still lead to it."""
SERVER = f"""\
import http.server, os, signal, socket, threading, time
NAME, ready = os.environ["POD_NAME"] + " " + os.environ["NODE_NAME"], True
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        global ready
        if self.path in ("/be-ready", "/be-unready"):
            ready = self.path == "/be-ready"
        self.send_response(200 if ready or self.path != "/ready" else 503)
        self.send_header("Content-Length", str(len(NAME))); self.end_headers()
        self.wfile.write(NAME.encode())
    def log_message(self, *_): pass
def datagrams():
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("", {PORT}))
        while True:
            sock.sendto(NAME.encode(), sock.recvfrom(64)[1])
server = http.server.ThreadingHTTPServer(("", {PORT}), Answer)
signal.signal(signal.SIGTERM, lambda *_: threading.Timer({LINGER}, server.shutdown).start())
threading.Thread(target=datagrams, daemon=True).start()
server.serve_forever()
"""
CLIENT = """\
import collections, http.client, json, socket, sys, time
way, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
lost, reason, by, connection, printed = 0, "", collections.Counter(), None, 0.0
TCP_INFO, TOTAL_RETRANS = 11, slice(100, 104)  # struct tcp_info of linux/tcp.h
def connect():
    made = socket.socket(type=socket.SOCK_DGRAM) if way == "udp" else http.client.HTTPConnection(host, port, timeout=5)
    if way == "udp":
        made.settimeout(0.5)
        made.connect((host, port))
    return made
def send():
    if way == "udp":
        connection.send(b"who?")
        return connection.recv(64).decode()
    connection.request("GET", "/")
    answer = connection.getresponse().read().decode()
    info = connection.sock.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 104)
    if way == "new" and any(info[TOTAL_RETRANS]):
        raise OSError("a packet had to be sent again")
    return answer
while True:
    failed = False
    try:
        connection = connection or connect()
        by[send()] += 1
    except (OSError, http.client.HTTPException) as error:
        lost, reason, failed = lost + 1, repr(error), True
    if way == "new" or (way == "held" and failed):
        connection = connection and connection.close()
    if time.monotonic() > printed + 0.1:
        print(json.dumps({"lost": lost, "reason": reason, "by": by}), flush=True)
        printed = time.monotonic()
    time.sleep(0.02)
"""
"""Client; arguments: kind, host, port.  Kinds: ``new`` connections (no first packet may be lost), one ``held``, ``udp`` of one socket."""

ENOUGH = 50
"""Least number of replies to a client for a valid statement that nothing was lost."""
PATIENCE = 90.0


def container(image: str, *arguments: str) -> dict[str, Any]:
    fields = {"NODE_NAME": "spec.nodeName", "POD_NAME": "metadata.name"}
    env = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    return {"name": "it", "image": image, "command": [PYTHON, "-c", *arguments], "env": env}


def server(image: str) -> dict[str, Any]:
    """One that is ready when it answers so."""
    probe = {"httpGet": {"path": "/ready", "port": PORT}, "periodSeconds": 1, "failureThreshold": 1}
    return {**container(image, SERVER), "readinessProbe": probe}


def pod(name: str, container: Mapping[str, Any], **spec: object) -> dict[str, Any]:
    """One that belongs to the Service of its name."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def deployment(name: str, image: str, replicas: int, **spec: object) -> dict[str, Any]:
    """Servers, as many on each worker as on the other if they can choose."""
    labels = {"app": name}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }
    pods = {
        "containers": [server(image)],
        "terminationGracePeriodSeconds": 30,
        "topologySpreadConstraints": [spread],
        **spec,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": labels}, "spec": pods},
        },
    }


def service(name: str, **spec: object) -> dict[str, Any]:
    ports = [
        {"name": protocol.lower(), "port": 80, "targetPort": PORT, "protocol": protocol}
        for protocol in ("TCP", "UDP")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": ports, **spec},
    }


@dataclass(frozen=True, slots=True)
class Seen:
    """Counts of a client so far."""

    lost: int
    reason: str
    """Of the last loss."""
    by: Mapping[str, int]
    """Answers, by pod and node."""

    @property
    def good(self) -> int:
        return sum(self.by.values())

    @property
    def pods(self) -> set[str]:
        return {who.split()[0] for who in self.by}

    @property
    def nodes(self) -> set[str]:
        return {who.split()[1] for who in self.by}

    def since(self, before: Seen) -> Seen:
        """What was counted since then."""
        counts = {who: n - before.by.get(who, 0) for who, n in self.by.items()}
        return Seen(self.lost - before.lost, self.reason, {who: n for who, n in counts.items() if n})


class Client:
    """A pod that connects all the time."""

    def __init__(self, read: Callable[[], str]) -> None:
        """``read``: gives the last line of its log."""
        self._read = read

    def seen(self) -> Seen:
        return Seen(**json.loads(self._read() or '{"lost": 0, "reason": "", "by": {}}'))

    def until(self, true: Callable[[Seen], bool], what: str) -> Seen:
        """Wait for a condition; returns the counts at that time."""
        deadline = time.monotonic() + PATIENCE
        while not true(seen := self.seen()):
            assert time.monotonic() < deadline, f"not {what}: {seen}"
            time.sleep(0.2)
        return seen

    def steady(self) -> Seen:
        """Wait until it has lost nothing for a while."""
        since = self.seen()

        def enough(seen: Seen) -> bool:
            nonlocal since
            since = since if seen.lost == since.lost else seen
            return seen.good >= since.good + ENOUGH

        return self.until(enough, "steady")

    def until_only(self, names: set[str]) -> Seen:
        """Wait until it is these pods that answer, all of them and no other; what it had seen by then."""
        since = self.seen()

        def theirs(seen: Seen) -> bool:
            nonlocal since
            if seen.good < since.good + ENOUGH:
                return False
            answered, since = seen.since(since).pods, seen
            return answered == names

        return self.until(theirs, f"answered by {names}")

    def until_refused(self) -> Seen:
        """Wait until connections are refused; returns the counts at that time."""
        since = self.seen()

        def refused(seen: Seen) -> bool:
            nonlocal since
            since = since if seen.good == since.good else seen
            return seen.since(since).lost >= ENOUGH

        return self.until(refused, "refused")

    def lost_nothing(self, before: Seen) -> Seen:
        """Fail if it has lost anything since; not before it has sent more requests."""
        now = self.seen()
        seen = self.until(lambda seen: seen.good + seen.lost >= now.good + now.lost + ENOUGH, "sending")
        assert not seen.since(before).lost, f"{seen.since(before).lost} lost: {seen.reason}"
        return seen


@contextmanager
def sending(cluster: Cluster, way: str, node: str, host: str, port: int) -> Iterator[Client]:
    """A client in the network of a node."""
    name = f"client-{way}-{secrets.token_hex(2)}"
    arguments = container(cluster.image, CLIENT, way, host, str(port))
    cluster.apply(pod(name, arguments, nodeName=node, hostNetwork=True))
    try:
        cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")
        yield Client(lambda: cluster.kubectl("logs", name, "--tail=1"))
    finally:
        cluster.kubectl("delete", "pod", name, "--wait")


@contextmanager
def served(
    cluster: Cluster,
    name: str,
    replicas: int,
    where: Mapping[str, str] = MappingProxyType({}),
    **fields: object,
) -> Iterator[int]:
    """A Deployment with a Service of type NodePort, ready; its node port.  ``where``: of the pods' specification."""
    cluster.apply(
        deployment(name, cluster.image, replicas, **where), service(name, type="NodePort", **fields)
    )
    try:
        cluster.rolled_out(f"deployment/{name}")
        yield int(cluster.get(f"service/{name}")["spec"]["ports"][0]["nodePort"])
    finally:
        cluster.kubectl("delete", f"deployment/{name}", f"service/{name}", "--wait=false")


@contextmanager
def requested(
    cluster: Cluster,
    name: str,
    replicas: int,
    ways: Sequence[str],
    where: Mapping[str, str] = MappingProxyType({}),
    **fields: object,
) -> Iterator[list[Client]]:
    """The same, with clients on the control plane that send to the node port of the first worker."""
    with ExitStack() as stack:
        port = stack.enter_context(served(cluster, name, replicas, where, **fields))
        place = cluster.control_plane, cluster.address(cluster.workers[0]), port
        yield [stack.enter_context(sending(cluster, way, *place)) for way in ways]


def pods(cluster: Cluster, name: str, node: str = "") -> list[str]:
    """The names of its pods, those on one node if one is named."""
    listed = cluster.listed("pods", f"app={name}")
    return [
        item["metadata"]["name"]
        for item in listed
        if item["spec"]["nodeName"] == (node or item["spec"]["nodeName"])
    ]


def only(cluster: Cluster, name: str, replicas: int) -> None:
    """Wait until there are no more pods than these: the old ones have ended."""
    deadline = time.monotonic() + PATIENCE
    while len(there := pods(cluster, name)) != replicas:
        assert time.monotonic() < deadline, there
        time.sleep(0.5)


def quiet(cluster: Cluster) -> None:
    """Wait until no pod is about to end: none gives its address back by surprise."""
    deadline = time.monotonic() + PATIENCE
    while ending := [pod for pod in cluster.listed("pods") if "deletionTimestamp" in pod["metadata"]]:
        assert time.monotonic() < deadline, [pod["metadata"]["name"] for pod in ending]
        time.sleep(0.5)
