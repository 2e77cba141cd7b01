"""Pods of the agents, as documents. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.lab.topology import LAB, NODES

PORT, HOST_PORT = 7001, 17001
"""Ports of agents: in a pod of its own, and on a node."""
MAX_LIFETIME_SECONDS = 4 * 3600
"""Seconds after which the kubelet ends an agent whose harness did not."""
PYTHON = "/usr/bin/python3"
MODULE = "kproxy.conformance.testbeds.cluster.agent"

LABELS: Mapping[str, str] = {"app.kubernetes.io/managed-by": "kproxy-conformance"}
"""Labels of all objects that the testbed creates."""
PRIVILEGED: Mapping[str, str] = {"pod-security.kubernetes.io/enforce": "privileged"}
"""Labels of the namespace: agents have CAP_NET_ADMIN, and some their node's network."""


@dataclass(frozen=True, slots=True)
class AgentPod:
    """One agent: its name in the lab, its node, and whether it is in the node's own network."""

    name: str
    node: str
    on_host: bool
    index: int

    @property
    def pod(self) -> str:
        """Name of its Pod."""
        return f"agent-{self.name}"

    @property
    def port(self) -> int:
        """Port that it listens on."""
        return HOST_PORT if self.on_host else PORT


def agent_pods(nodes: Mapping[str, str], neighbour: str = "") -> tuple[AgentPod, ...]:
    """All agents; ``nodes``: the names of the Node objects that are ``a`` and ``b``; ``neighbour``: a third one's."""
    places = [(pod, nodes[node], False) for node, pods in LAB.pods.items() for pod in pods]
    places += [(node, nodes[node], True) for node in NODES]
    places += [("client", neighbour, True)] if neighbour else []
    return tuple(AgentPod(*place, index) for index, place in enumerate(places, 1))


def agent_pod_document(
    agent: AgentPod, namespace: str, image: str, environment: Mapping[str, str]
) -> Document:
    """Pod of an agent, as a document."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": agent.pod, "namespace": namespace, "labels": dict(LABELS)},
        "spec": {
            "nodeName": agent.node,
            "hostNetwork": agent.on_host,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": MAX_LIFETIME_SECONDS,
            "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "agent",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": [PYTHON, "-m", MODULE],
                    "args": [agent.name, str(agent.index), str(agent.port)],
                    "env": [{"name": name, "value": value} for name, value in environment.items()],
                    "securityContext": {
                        "runAsUser": 0,
                        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
                    },
                    "volumeMounts": [{"name": "run", "mountPath": "/run"}],
                }
            ],
            "volumes": [{"name": "run", "emptyDir": {}}],
        },
    }
