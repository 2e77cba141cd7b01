"""Workloads in a cluster, of our own image's Python: a server, and a client that asks it all the time and counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.kind.cluster import Cluster

PORT = 8080
SERVER = f"""\
import http.server, os, signal, threading, time
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.environ["NODE_NAME"].encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("", {PORT}), Answer)
def end(*_):  # as a good server does: serve while it is terminating
    threading.Thread(target=lambda: (time.sleep(15), server.shutdown())).start()
signal.signal(signal.SIGTERM, end)
server.serve_forever()
"""
RESULT = "/tmp/result"  # noqa: S108 (in a container of its own)
CLIENT = """\
import json, os, signal, sys, time, urllib.request
good, bad, going = 0, [], True
def end(*_):
    global going
    going = False
signal.signal(signal.SIGTERM, end)
while going:
    try:
        with urllib.request.urlopen(sys.argv[1], timeout=2) as answer:
            good += answer.status == 200
    except OSError as error:
        bad.append(f"{time.time():.1f} {error}")
    with open(sys.argv[2] + ".new", "w") as file:
        json.dump({"good": good, "bad": bad[:20]}, file)
    os.replace(sys.argv[2] + ".new", sys.argv[2])
    time.sleep(0.02)
"""


def container(image: str, *words: str) -> dict[str, Any]:
    return {
        "name": "it",
        "image": image,
        "command": ["/usr/bin/python3", "-c", *words],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    }


def deployment(name: str, image: str, replicas: int, **spec: object) -> dict[str, Any]:
    """Servers that are ready when they answer."""
    server = {
        **container(image, SERVER),
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1},
    }
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [server], "terminationGracePeriodSeconds": 30, **spec},
            },
        },
    }


def service(name: str, **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": PORT}], **spec},
    }


class Client:
    """A pod that asks a URL all the time."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name = cluster, name

    def result(self) -> tuple[int, list[str]]:
        """How many answers there were up to now, and what failed."""
        read = f"print(open('{RESULT}').read())"
        seen = json.loads(self._cluster.kubectl("exec", self._name, "--", "/usr/bin/python3", "-c", read))
        return seen["good"], seen["bad"]


@contextmanager
def asking(cluster: Cluster, image: str, url: str, node: str) -> Iterator[Client]:
    """A client in the network of a node."""
    name = "client"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 0,
            "containers": [container(image, CLIENT, url, RESULT)],
        },
    }
    cluster.apply(pod)
    try:
        cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")
        yield Client(cluster, name)
    finally:
        cluster.kubectl("delete", "pod", name, "--wait")
