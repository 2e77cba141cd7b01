"""Agents that do not run, or do not answer as agents do, are distinguished; what was made goes whatever happened."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from kproxy.conformance.testbed import HarnessError
from kproxy.conformance.testbeds.cluster import fleet as fleets
from kproxy.conformance.testbeds.cluster import messages, pods, wire
from kproxy.conformance.testbeds.cluster.agent import KEY_HEADER
from kproxy.conformance.testbeds.cluster.connection import ClusterConnection, NoCluster
from kproxy.conformance.testbeds.cluster.fleet import Fleet, OutsideAgents
from kproxy.lab.kube import NotAdmitted
from kproxy.lab.kube.store import KubeStore
from kproxy.lab.namespaces import LabError

MEMBERS = pods.agent_pods({"a": "worker-1", "b": "worker-2"})
CONNECTION = ClusterConnection("http://127.0.0.1:1", "test", None, dict)


class Store:
    """In an API server's place: pods have the status that the test gives."""

    def __init__(self, status: Mapping[str, Any], *, removes: bool = True) -> None:
        self.status, self.removes = status, removes
        self.made: list[str] = []
        self.deleted = False

    def make_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        assert labels.items() >= pods.LABELS.items()
        self.made.append(name)

    def request(
        self, method: str, path: str, document: object = None, tolerated: tuple[int, ...] = ()
    ) -> Any:  # noqa: ANN401
        assert (document is not None) == (method == "POST")
        match method, path.rpartition("/")[2]:
            case "POST", "pods":
                return {}
            case "GET", "pods":
                return {"items": [{"metadata": {"name": one.pod}, "status": self.status} for one in MEMBERS]}
            case "DELETE", _:
                self.deleted = True
                return {}
            case _ if self.deleted and self.removes:
                assert tolerated
                return {"code": 404}
            case _:
                return {"kind": "Namespace"}


def started(store: Store) -> None:
    async def run() -> None:
        async with fleets.open_fleet(CONNECTION, cast("KubeStore", store), MEMBERS, "kproxy:1"):
            raise AssertionError

    asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
                ],
            },
            "agent-a1 does not run: ImagePullBackOff no such image",
        ),
        ({"phase": "Failed", "message": "Node has no room"}, "agent-a1 does not run: Node has no room"),
        (
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"reason": "Error"}}}]},
            "agent-a1 does not run: Error",
        ),
    ],
)
def test_an_agent_that_will_not_run_is_reported_at_once_and_all_is_removed(
    status: Mapping[str, Any], why: str
) -> None:
    store = Store(status)
    with pytest.raises(NoCluster, match=why):
        started(store)
    assert store.made
    assert store.deleted


def test_an_agent_that_is_late_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "START_PATIENCE", 0.1)
    with pytest.raises(NoCluster, match="agent-a1 does not run: Pending"):
        started(Store({"phase": "Pending"}))


def test_what_the_cluster_does_not_let_us_make_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store({})

    def refuse(*_: object) -> None:
        raise NotAdmitted("namespaces is forbidden")

    monkeypatch.setattr(store, "make_namespace", refuse)
    with pytest.raises(NoCluster, match="does not let agents run: namespaces is forbidden"):
        started(store)


def test_a_namespace_that_stays_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "END_PATIENCE", 0.1)
    with pytest.raises(LabError, match="kubectl delete namespace kproxy-x"):
        asyncio.run(fleets.remove_namespace(cast("KubeStore", Store({}, removes=False)), "kproxy-x"))


def _token() -> dict[str, str]:
    return {"Authorization": "Bearer token"}


async def requested(answer: Callable[[web.Request], web.Response]) -> object:
    async def handle(request: web.Request) -> web.Response:
        assert request.path.endswith("/pods/agent-a1:7001/proxy/ask")
        assert request.headers["Authorization"] == "Bearer token"
        assert request.headers[KEY_HEADER] == "secret"
        assert wire.decode_agent_message(await request.read()) == messages.Hello()
        return answer(request)

    application = web.Application()
    application.router.add_post("/{path:.*}", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        tls: ssl.SSLContext | None = None
        connection = ClusterConnection(f"http://127.0.0.1:{runner.addresses[0][1]}", "test", tls, _token)
        async with aiohttp.ClientSession() as session:
            made = Fleet("ours", {one.name: one for one in MEMBERS}, {}, connection, session, "secret")
            return await made.send("a1", messages.Hello(), messages.About)
    finally:
        await runner.cleanup()


def test_an_agent_outside_is_queried_directly_and_is_not_informed_who_we_are_to_the_cluster() -> None:
    outside = OutsideAgents({"client": "http://192.168.7.20:7001/"}, "theirs")
    made = Fleet(
        "ours",
        {},
        {},
        ClusterConnection("http://127.0.0.1:1", "test", None, _token),
        cast("Any", None),
        "ours",
        outside,
    )
    assert made.names == ("client",)
    assert made.endpoint("client") == ("http://192.168.7.20:7001/ask", {KEY_HEADER: "theirs"})


ABOUT = messages.About("a1", (), sctp=True)


def test_an_agent_is_queried_through_the_api_server_with_the_key_of_the_run() -> None:
    assert asyncio.run(requested(lambda _: web.Response(body=wire.encode_agent_message(ABOUT)))) == ABOUT


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            web.Response(status=503, text="no endpoints available"),
            "agent a1 did not answer: status 503: no endpoints",
        ),
        (web.Response(text="<html>"), "another version"),
        (
            web.Response(body=wire.encode_agent_message(messages.Wrong("OSError: no"))),
            "agent a1: OSError: no",
        ),
        (web.Response(body=wire.encode_agent_message(messages.Done())), r"agent a1: Done\(\)"),
    ],
)
def test_what_is_no_answer_is_no_failure_of_the_proxy(answer: web.Response, why: str) -> None:
    with pytest.raises(HarnessError, match=why):
        asyncio.run(requested(lambda _: answer))
