"""The agent by its messages, in this process and on loopback; with captures in `tests.kind.test_catalogue`."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from kproxy.conformance.testbeds.cluster import messages, pods, wire
from kproxy.conformance.testbeds.cluster.agent import (
    KEY,
    KEY_HEADER,
    PATH,
    Agent,
    agent_main,
    parse_fib_trie,
    redirect_sysctls,
)
from kproxy.lab.namespaces import CurrentNamespace
from kproxy.lab.topology import LAB, NODES

TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
     |-- 172.30.0.11
        /32 link UNICAST
        /32 host LOCAL
     |-- 172.30.0.255
        /32 link BROADCAST
Local:
     |-- 172.30.0.11
        /32 host LOCAL
"""


def test_own_addresses_are_those_the_kernel_calls_local() -> None:
    assert parse_fib_trie(TRIE.splitlines()) == [ip_address("127.0.0.1"), ip_address("172.30.0.11")]


def test_a_client_outside_reports_by_which_sysctls_it_would_be_redirected(tmp_path: Path) -> None:
    for name, value in (
        ("ipv4/conf/all", "0"),
        ("ipv4/conf/default", "1"),
        ("ipv4/conf/eth0", "1"),
        ("ipv4/conf/lo", "1"),
        ("ipv6/conf/all", "1"),
        ("ipv6/conf/eth0", "0"),
        ("ipv6/conf/eth1", "1"),
    ):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "accept_redirects").write_text(f"{value}\n")
    found = redirect_sysctls(CurrentNamespace("client"), tmp_path)
    assert found == ("net.ipv4.conf.eth0.accept_redirects", "net.ipv6.conf.eth1.accept_redirects")


class Flow:
    """A held flow, as far as an agent closes it."""

    closed = False

    def close(self) -> None:
        self.closed = True


def test_an_agent_begins_a_run_without_the_flows_of_the_one_before() -> None:
    agent, flow = Agent.__new__(Agent), Flow()
    agent.name, agent.here, agent._flows = "client", CurrentNamespace("client"), {"flow-1": flow}  # type: ignore[dict-item]
    about = asyncio.run(agent.execute(messages.Hello()))
    assert isinstance(about, messages.About)
    assert flow.closed
    assert agent._flows == {}


class Deaf(Agent):
    """One without captures, which only root may have."""

    def __init__(self) -> None:
        self.name = "a1"

    async def execute(self, command: object) -> object:
        if isinstance(command, messages.Hello):
            return messages.About("a1", (), sctp=False)
        raise OSError(98, "Address in use")


@contextmanager
def key(monkeypatch: pytest.MonkeyPatch, value: str) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv(KEY, value)
        yield


async def requested(body: bytes, shown: str) -> tuple[int, bytes]:
    application = web.Application()
    application.router.add_post(PATH, Deaf().handle)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://{host}:{port}{PATH}", data=body, headers={KEY_HEADER: shown}) as answer,
        ):
            return answer.status, await answer.read()
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("body", "shown", "status", "answer"),
    [
        (wire.encode_agent_message(messages.Hello()), "secret", 200, messages.About("a1", (), sctp=False)),
        (wire.encode_agent_message(messages.Hello()), "guessed", 403, None),
        (wire.encode_agent_message(messages.Hello()), "", 403, None),
        (b"{", "secret", 400, None),
        (
            wire.encode_agent_message(messages.ReadState()),
            "secret",
            200,
            messages.Wrong("OSError: [Errno 98] Address in use"),
        ),
    ],
)
def test_an_agent_does_what_is_requested_by_who_has_the_key(
    monkeypatch: pytest.MonkeyPatch, body: bytes, shown: str, status: int, answer: object
) -> None:
    with key(monkeypatch, "secret"):
        came, reply = asyncio.run(requested(body, shown))
    assert came == status
    assert answer is None or wire.decode_agent_message(reply) == answer


def test_an_agent_without_a_key_does_not_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with key(monkeypatch, ""), pytest.raises(SystemExit):
        agent_main(["a1", "1", "7001"])
    assert KEY in capsys.readouterr().err


def test_there_is_an_agent_for_every_pod_and_every_node() -> None:
    nodes = {"a": "worker-1", "b": "worker-2"}
    members = {one.name: one for one in pods.agent_pods(nodes, "worker-3")}
    assert set(members) == {*LAB.pod_address, *NODES, "client"}
    assert {one.node for name, one in members.items() if name[0] == "b"} == {"worker-2"}
    assert [name for name, one in members.items() if one.on_host] == ["a", "b", "client"]
    assert len({one.index for one in members.values()}) == len(members)
    assert "client" not in {one.name for one in pods.agent_pods(nodes)}


def test_an_agents_pod_has_the_rights_it_needs_and_no_others() -> None:
    (pod, *_, host) = pods.agent_pods({"a": "worker-1", "b": "worker-2"})
    made, on_host = (
        pods.agent_pod_document(one, "somewhere", "kproxy:1", {KEY: "secret"}) for one in (pod, host)
    )
    (container,) = made["spec"]["containers"]
    capabilities = container["securityContext"]["capabilities"]
    assert capabilities == {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]}
    assert not made["spec"]["hostNetwork"]
    assert on_host["spec"]["hostNetwork"]
    assert not made["spec"]["automountServiceAccountToken"]
    assert container["env"] == [{"name": KEY, "value": "secret"}]
