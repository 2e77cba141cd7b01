"""Agents of one run: their namespace and Pods in the cluster, and requests to them.

Requests go through the API server (``pods/proxy``): a kubeconfig is all the harness needs, and neither it nor the
pods open a port to other clients.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeVar

import aiohttp

from kproxy.conformance.binding.kubernetes_objects import Document
from kproxy.conformance.testbed import HarnessError
from kproxy.conformance.testbeds.cluster import messages, pods, wire
from kproxy.conformance.testbeds.cluster.agent import KEY, KEY_HEADER, PATH
from kproxy.conformance.testbeds.cluster.cluster_topology import Addresses
from kproxy.conformance.testbeds.cluster.connection import ClusterConnection, NoCluster
from kproxy.conformance.testbeds.cluster.survey import pod_addresses
from kproxy.lab.kube import NotAdmitted
from kproxy.lab.kube.store import KubeStore
from kproxy.lab.namespaces import LabError

START_PATIENCE = 180.0
"""Seconds until every agent must reply: an image may have to be pulled."""
END_PATIENCE = 60.0
"""Seconds that the cluster may take to remove the namespace."""
_POLL = 0.2
_AT_ONCE = 64
_TIMEOUT = aiohttp.ClientTimeout(total=60.0)
_SHOWN = 300

NOT_FOUND = HTTPStatus.NOT_FOUND.value
FATAL_REASONS = frozenset(
    {
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
    }
)
"""Reasons of a waiting container that do not pass by themselves."""

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class OutsideAgents:
    """Agents outside of the cluster, started by the user: the URL of each by its name, and their key."""

    urls: Mapping[str, str] = field(default_factory=dict)
    key: str = ""


NO_OUTSIDE_AGENTS = OutsideAgents()


@dataclass(frozen=True)
class Fleet:
    """Running agents; ``addresses``: those of their Pods."""

    namespace: str
    members: Mapping[str, pods.AgentPod]
    addresses: Mapping[str, Addresses]
    connection: ClusterConnection
    session: aiohttp.ClientSession
    key: str
    outside: OutsideAgents = NO_OUTSIDE_AGENTS

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all agents."""
        return (*self.members, *self.outside.urls)

    def endpoint(self, agent: str) -> tuple[str, dict[str, str]]:
        """URL of an agent, and the headers that the agent and the API server's proxy require."""
        if agent in self.outside.urls:
            return self.outside.urls[agent].rstrip("/") + PATH, {KEY_HEADER: self.outside.key}
        member = self.members[agent]
        path = f"/api/v1/namespaces/{self.namespace}/pods/{member.pod}:{member.port}/proxy{PATH}"
        return self.connection.url + path, {**self.connection.headers(), KEY_HEADER: self.key}

    async def send(self, agent: str, command: object, answer: type[A]) -> A:
        """Execute a command on an agent. Raises `HarnessError` without a reply of this type."""
        url, headers = self.endpoint(agent)
        try:
            async with self.session.post(
                url, data=wire.encode_agent_message(command), headers=headers
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise HarnessError(f"agent {agent} did not answer: {type(error).__name__} {error}") from error
        if response.status != 200:
            text = body.decode(errors="replace")[:_SHOWN]
            raise HarnessError(f"agent {agent} did not answer: status {response.status}: {text}")
        try:
            reply = wire.decode_agent_message(body)
        except wire.BadMessage as reason:
            raise HarnessError(f"agent {agent} is of another version than this kproxy: {reason}") from reason
        if not isinstance(reply, answer):
            raise HarnessError(
                f"agent {agent}: {reply.reason if isinstance(reply, messages.Wrong) else reply}"
            )
        return reply

    async def send_all(self, command: object, answer: type[A], but: Sequence[str] = ()) -> dict[str, A]:
        """Execute a command on all agents except these."""
        recipients = [name for name in self.names if name not in but]
        answers = await asyncio.gather(*(self.send(name, command, answer) for name in recipients))
        return dict(zip(recipients, answers, strict=True))


@asynccontextmanager
async def open_fleet(
    connection: ClusterConnection,
    store: KubeStore,
    members: Sequence[pods.AgentPod],
    image: str,
    outside: OutsideAgents = NO_OUTSIDE_AGENTS,
) -> AsyncIterator[Fleet]:
    """Agents in a namespace of their own, which is deleted after the block in any case.

    Raises `NoCluster` when they do not run.
    """
    namespace, key = f"kproxy-conformance-{secrets.token_hex(3)}", secrets.token_hex(16)
    try:
        store.make_namespace(namespace, {**pods.LABELS, **pods.PRIVILEGED})
        await _have_service_account(store, namespace)
        for member in members:
            document = pods.agent_pod_document(member, namespace, image, {KEY: key})
            store.request("POST", f"/api/v1/namespaces/{namespace}/pods", document)
        addresses = await _running(store, namespace, members)
        connector = aiohttp.TCPConnector(limit=_AT_ONCE, ssl=connection.tls or False)
        async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session:
            named = {member.name: member for member in members}
            made = Fleet(namespace, named, addresses, connection, session, key, outside)
            await _answering(made)
            yield made
    except NotAdmitted as reason:
        raise NoCluster(f"the cluster does not let agents run: {reason}") from reason
    finally:
        await remove_namespace(store, namespace)


async def remove_namespace(store: KubeStore, namespace: str) -> None:
    """Delete a namespace and wait until it is gone; raises `LabError` with the remedy when it stays."""
    path = f"/api/v1/namespaces/{namespace}"
    deadline = time.monotonic() + END_PATIENCE
    with suppress(NotAdmitted):  # a user who may not delete it could not create it
        store.request("DELETE", path, tolerated=(NOT_FOUND,))
        while store.request("GET", path, tolerated=(NOT_FOUND,)).get("code") != NOT_FOUND:
            if time.monotonic() > deadline:
                raise LabError(
                    f"the cluster has not removed what was made: kubectl delete namespace {namespace}"
                )
            await asyncio.sleep(_POLL)


async def _have_service_account(store: KubeStore, namespace: str) -> None:
    """Wait for the default service account, which a controller creates: no Pod is admitted before."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    deadline = time.monotonic() + START_PATIENCE
    while store.request("GET", path, tolerated=(NOT_FOUND,)).get("code") == 404:
        if time.monotonic() > deadline:
            raise NoCluster("no controller makes the service account of a new namespace")
        await asyncio.sleep(_POLL)


async def _running(
    store: KubeStore, namespace: str, members: Sequence[pods.AgentPod]
) -> dict[str, Addresses]:
    """Wait until every Pod runs and has its addresses."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    deadline = time.monotonic() + START_PATIENCE
    while True:
        found = {pod["metadata"]["name"]: pod for pod in store.request("GET", path)["items"]}
        waiting = [m.pod for m in members if not _runs(found.get(m.pod, {}))]
        if not waiting:
            return {member.name: pod_addresses(found[member.pod]) for member in members}
        ended = [name for name in waiting if _is_hopeless(found.get(name, {}))]
        if ended or time.monotonic() > deadline:
            name = (ended or waiting)[0]
            raise NoCluster(f"{name} does not run: {_why(found.get(name, {}))}")
        await asyncio.sleep(_POLL)


def _phase(pod: Document) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def _runs(pod: Document) -> bool:
    return _phase(pod) == "Running" and bool(pod_addresses(pod))


def _states(pod: Document) -> list[Document]:
    """States of its containers: waiting, running or terminated."""
    statuses: list[Document] = pod.get("status", {}).get("containerStatuses", [])
    return [state for one in statuses for state in one.get("state", {}).values()]


def _is_hopeless(pod: Document) -> bool:
    ended = _phase(pod) in {"Failed", "Succeeded"}
    return ended or any(state.get("reason") in FATAL_REASONS for state in _states(pod))


def _why(pod: Document) -> str:
    """Reason in a Pod's status: of a container that waits or has ended, or the phase."""
    reasons = [f"{s.get('reason', '')} {s.get('message', '')}".strip() for s in _states(pod)]
    message = pod.get("status", {}).get("message")
    return "; ".join(filter(None, reasons)) or str(message or _phase(pod) or "it is not there")


async def _answering(made: Fleet) -> None:
    """Wait until every agent replies."""
    deadline = time.monotonic() + START_PATIENCE
    for name in made.names:
        while True:
            try:
                await made.send(name, messages.Hello(), messages.About)
                break
            except HarnessError as reason:
                if time.monotonic() > deadline:
                    raise NoCluster(
                        f"{reason}: the API server must reach pods on port {pods.PORT} and nodes on {pods.HOST_PORT}"
                    ) from reason
            await asyncio.sleep(_POLL)
