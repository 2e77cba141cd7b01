"""The lab itself: real packets under rules made by hand, so that what it reports is known beforehand."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kproxy.lab import namespaces
from kproxy.lab.captures import capture, ring
from kproxy.lab.faults.link import link_down
from kproxy.lab.lab import Traced
from kproxy.lab.namespaces import LabError
from kproxy.lab.network import build_network
from kproxy.lab.probes.crafted import Martian, send_martian, send_out_of_window
from kproxy.lab.probes.message import encode_request
from kproxy.lab.probes.observation import (
    Answered,
    Icmp,
    NetworkError,
    Observation,
    ProbeRequest,
    Refused,
    Reset,
    Silent,
    Socket,
    Unsupported,
)
from kproxy.lab.processes import Xtables, listen_in, run_in, spawn, xtables_directory
from kproxy.lab.topology import ELSEWHERE, LAB, NODES, UPLINK
from kproxy.model.network import Address, Family, Protocol
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from tests.netns.conftest import Bench

V4, V6 = Family.IPV4, Family.IPV6
TCP, UDP, SCTP = Protocol.TCP, Protocol.UDP, Protocol.SCTP
VIP = {V4: ip_address("10.96.3.3"), V6: ip_address("fd00:96::33")}
"""Unclaimed at port 80."""

LOOPBACK = {V4: ip_address("127.0.0.1"), V6: ip_address("::1")}
OPEN, CLOSED = 8080, 8081
DROPPED, RST, PORT, HOST, ADMIN, MUTE = 1001, 1002, 1003, 1004, 1005, 1006
"""Ports that node a judges; `MUTE`: it lets requests through and drops the answers."""

KEPT, MASQUERADED, TRANSLATED_REJECTED = 2001, 2002, 2003
"""Ports of the VIP that node a translates to the same port of b1."""

PATIENCE, LONG = 0.3, 5.0

both_families = pytest.mark.parametrize("family", Family)
both_protocols = pytest.mark.parametrize("protocol", [TCP, UDP])

RULES = f"""
table inet judge {{
  chain verdict {{
    th dport {DROPPED} drop
    th sport {MUTE} drop
    tcp dport {RST} reject with tcp reset
    th dport {{ {PORT}, {TRANSLATED_REJECTED} }} reject with icmpx port-unreachable
    th dport {HOST} reject with icmpx host-unreachable
    th dport {ADMIN} reject with icmpx admin-prohibited
  }}
  chain forward {{ type filter hook forward priority 0; meta l4proto {{ tcp, udp, sctp }} jump verdict; }}
  chain output {{ type filter hook output priority 0; meta l4proto {{ tcp, udp, sctp }} jump verdict; }}
  chain translate {{
    ip daddr {VIP[V4]} th dport {KEPT}-{TRANSLATED_REJECTED} dnat ip to {LAB.pod_address["b1"][V4]}
    ip6 daddr {VIP[V6]} th dport {KEPT}-{TRANSLATED_REJECTED} dnat ip6 to {LAB.pod_address["b1"][V6]}
  }}
  chain prerouting {{ type nat hook prerouting priority -100; meta l4proto {{ tcp, udp, sctp }} jump translate; }}
  chain nat_output {{ type nat hook output priority -100; meta l4proto {{ tcp, udp, sctp }} jump translate; }}
  chain postrouting {{
    type nat hook postrouting priority 100
    meta l4proto {{ tcp, udp, sctp }} th dport {MASQUERADED} masquerade
  }}
}}
"""


@pytest.fixture(scope="module")
def served(shared_bench: Bench) -> Bench:
    """Servers on pods and nodes, and every kind of verdict by port on node a."""
    lab = shared_bench.lab
    for protocol in (TCP, UDP):
        for name in ("a1", "b1", "b"):
            lab.servers.serve(lab.network[name], OPEN, protocol, name)
        for port in (MUTE, KEPT, MASQUERADED, TRANSLATED_REJECTED):
            lab.servers.serve(lab.network["b1"], port, protocol, "b1")
    lab.network["a"].run(("nft", "-f", "-"), RULES)
    return shared_bench


def probe_request(
    sender: str, to: Address, port: int = OPEN, protocol: Protocol = TCP, **more: object
) -> ProbeRequest:
    request = ProbeRequest(sender=sender, destination=to, port=port, protocol=protocol, patience=PATIENCE)
    return replace(request, **more)  # type: ignore[arg-type]


def one(bench: Bench, request: ProbeRequest) -> Observation:
    return bench.probe(request)[0]


def answered(observation: Observation) -> Answered:
    assert isinstance(observation, Answered), observation
    return observation


# --------------------------------------------------------------------------- the topology


@both_families
@both_protocols
def test_a_pod_reaches_a_pod_of_another_node_with_its_own_address(
    served: Bench, family: Family, protocol: Protocol
) -> None:
    pod = LAB.pod_address["b1"][family]
    seen = answered(one(served, probe_request("a1", pod, protocol=protocol)))
    assert (seen.who, seen.at) == ("b1", Socket(pod, OPEN))
    assert seen.peer == seen.own
    assert seen.own.address == LAB.pod_address["a1"][family]


@both_families
def test_clients_reach_pods_and_see_nodes_on_both_networks(served: Bench, family: Family) -> None:
    to = [LAB.pod_address["b1"], LAB.node_address["b"], LAB.second_address["b"]]
    senders = [("client", LAB.client_address["a"]), ("remote", LAB.remote_address["a"])]
    requests = [probe_request(s, d[family], source=own[family]) for s, own in senders for d in to]
    seen = [answered(observation) for observation in served.probe(*requests)]
    assert [s.who for s in seen] == ["b1", "b", "b"] * 2
    assert [s.peer.address for s in seen] == [own[family] for _, own in senders for _ in to]


@both_families
@both_protocols
@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("sender", ["client", "remote"])
def test_an_outside_clients_address_chooses_the_node_and_what_it_lets_through_is_answered_elsewhere(
    served: Bench, family: Family, protocol: Protocol, node: str, sender: str
) -> None:
    source = {"client": LAB.client_address, "remote": LAB.remote_address}[sender][node][family]
    traced = served.run(served.lab.trace(probe_request(sender, VIP[family], 80, protocol, source=source)))
    assert answered(traced.observation).who == ELSEWHERE
    assert answered(traced.observation).peer.address == source
    assert [n for n in NODES if traced.evidence.entered(n)] == [node]
    (leaving,) = traced.evidence.left(node)
    assert leaving.interface == UPLINK
    assert leaving.destination == Socket(VIP[family], 80)


@both_families
@both_protocols
@pytest.mark.parametrize("sender", ["a", "a2"])
def test_what_a_node_does_not_claim_for_itself_or_its_pods_is_answered_elsewhere(
    served: Bench, family: Family, protocol: Protocol, sender: str
) -> None:
    assert answered(one(served, probe_request(sender, VIP[family], 80, protocol))).who == ELSEWHERE


def test_a_link_that_was_down_is_as_it_was(bench: Bench) -> None:
    lab, node = bench.lab, bench.lab.network["a"]
    lab.network.add_node_address("a", V6, LAB)
    for name in ("a1", "b1"):
        lab.servers.serve(lab.network[name], OPEN, TCP, name)
    ways = [
        (one, LAB.pod_address[to][family]) for one, to in (("b1", "a1"), ("a1", "b1")) for family in Family
    ]
    requests = [probe_request(sender, to) for sender, to in ways]
    shown = (
        ("ip", "-oneline", "address", "show", "scope", "global"),
        ("ip", "route"),
        ("ip", "-6", "route"),
    )

    def state() -> list[list[str]]:
        return [sorted(node.run(command).splitlines()) for command in shown]

    async def reached_while_down() -> list[Observation]:
        async with link_down(node):
            return [await lab.probe(request) for request in requests]

    before = state()
    assert not any(isinstance(seen, Answered) for seen in bench.run(reached_while_down()))
    assert eventually(lambda: all(isinstance(seen, Answered) for seen in bench.probe(*requests)))
    assert state() == before


@both_families
@both_protocols
def test_every_byte_of_a_large_exchange_comes_back(served: Bench, family: Family, protocol: Protocol) -> None:
    request = probe_request("a1", LAB.pod_address["b1"][family], protocol=protocol, size=9000, patience=2)
    assert answered(one(served, request)).who == "b1"


# --------------------------------------------------------------------------- failures, distinguished


@dataclass(frozen=True)
class From:
    """A vantage behind, or on, the judging node, and who signs that node's rejections to it."""

    sender: str
    judge: Mapping[Family, Address]


POD = From("a1", LAB.pod_gateway["a"])
NODE = From("a", LAB.node_address["a"])
VANTAGES = pytest.mark.parametrize("vantage", [POD, NODE], ids=["forwarded", "own output"])


@both_families
@both_protocols
@VANTAGES
@pytest.mark.parametrize(
    ("port", "v4", "v6"), [(PORT, (3, 3), (1, 4)), (HOST, (3, 1), (1, 3)), (ADMIN, (3, 13), (1, 1))]
)
def test_a_rejection_has_type_code_and_sender(
    served: Bench,
    family: Family,
    protocol: Protocol,
    vantage: From,
    port: int,
    v4: tuple[int, int],
    v6: tuple[int, int],
) -> None:
    began = time.perf_counter()
    request = probe_request(vantage.sender, LAB.pod_address["b1"][family], port, protocol, patience=LONG)
    seen = one(served, request)
    code = v4 if family is V4 else v6
    assert seen == Refused(
        Icmp(family, *code), vantage.judge[family], Socket(LAB.pod_address["b1"][family], port)
    )
    assert time.perf_counter() - began < LONG


@both_families
def test_a_refused_connection_was_sent_once_though_the_lab_was_busy_for_a_second(
    served: Bench, family: Family
) -> None:
    """A socket that is busy as its ICMP error arrives reports the error, and yet sends its SYN again after a second."""

    async def busy_after_sending(port: int) -> Traced:
        to = LAB.pod_address["b1"][family]
        probing = asyncio.create_task(served.lab.trace(probe_request("a1", to, port, patience=1)))
        asyncio.get_running_loop().call_soon(time.sleep, 1.3)
        return await probing

    refused, dropped = served.run(busy_after_sending(PORT)), served.run(busy_after_sending(DROPPED))
    assert isinstance(refused.observation, Refused)
    assert isinstance(dropped.observation, Silent)
    assert len(refused.evidence.left("a1")) == 1 < len(dropped.evidence.left("a1"))


@both_families
@VANTAGES
def test_a_reset_is_not_a_rejection(served: Bench, family: Family, vantage: From) -> None:
    pod = LAB.pod_address["b1"][family]
    assert served.probe(
        probe_request(vantage.sender, pod, RST), probe_request(vantage.sender, pod, CLOSED)
    ) == [Reset(), Reset()]


@both_families
def test_a_closed_udp_port_is_refused_by_its_owner(served: Bench, family: Family) -> None:
    pod = LAB.pod_address["b1"][family]
    seen = one(served, probe_request("a1", pod, CLOSED, UDP))
    assert seen == Refused(Icmp(family, *((3, 3) if family is V4 else (1, 4))), pod, Socket(pod, CLOSED))


@both_families
@both_protocols
def test_a_drop_is_silence_with_proof_of_where_it_ended(
    served: Bench, family: Family, protocol: Protocol
) -> None:
    seen = one(served, probe_request("a1", LAB.pod_address["b1"][family], DROPPED, protocol))
    assert isinstance(seen, Silent)
    assert seen.evidence.entered("a")
    assert not seen.evidence.left("a")
    assert not seen.endpoint_saw
    assert seen.evidence.lost == 0


def test_a_socket_beyond_the_limit_of_open_files_is_an_error_that_names_the_remedy() -> None:
    with closing(namespaces.create_namespace("full")) as namespace:
        namespace.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(LabError, match="raise the limit: ulimit -n"):
                namespace.socket(socket.AF_INET, socket.SOCK_DGRAM)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_packets_that_find_no_room_are_counted_as_lost() -> None:
    """The control is the room that captures have."""
    assert asyncio.run(lost_of_a_burst(ring.FRAMES)) == 0
    assert asyncio.run(lost_of_a_burst(1)) > 0


async def lost_of_a_burst(frames: int) -> int:
    """Packets lost of 500 that are sent before any is read."""
    with closing(namespaces.create_namespace("burst")) as namespace:
        namespace.run(("ip", "link", "set", "lo", "up"))
        with (
            closing(capture.Captures([namespace], frames)) as captures,
            namespace.socket(socket.AF_INET, socket.SOCK_DGRAM, 0) as sender,
        ):
            for number in range(500):
                sender.sendto(encode_request(number), ("127.0.0.1", CLOSED))
            captures.drain()
            return captures.lost()


@both_families
def test_a_drop_in_the_senders_own_output_is_silence_too(served: Bench, family: Family) -> None:
    pod = LAB.pod_address["b1"][family]
    tcp, udp = served.probe(probe_request("a", pod, DROPPED, TCP), probe_request("a", pod, DROPPED, UDP))
    assert isinstance(tcp, Silent)
    assert tcp.evidence.sightings == ()
    assert udp == Silent(stopped_at_sender=True)


@both_protocols
def test_a_missing_route_is_an_error_of_the_sender(bench: Bench, protocol: Protocol) -> None:
    bench.lab.network["a1"].run(("ip", "route", "del", "default"))
    assert one(bench, probe_request("a1", VIP[V4], 80, protocol)) == NetworkError(errno.ENETUNREACH)


@both_families
@both_protocols
def test_an_answer_that_gets_lost_is_distinguished_from_a_request_that_does(
    served: Bench, family: Family, protocol: Protocol
) -> None:
    seen = one(served, probe_request("a1", LAB.pod_address["b1"][family], MUTE, protocol))
    assert isinstance(seen, Silent)
    assert seen.evidence.entered("b1")
    assert seen.endpoint_saw is (protocol is UDP)


@both_families
def test_sctp_is_distinguished_likewise_or_declared_missing(served: Bench, family: Family) -> None:
    lab, pod = served.lab, LAB.pod_address["b1"][family]
    try:
        lab.servers.serve(lab.network["b1"], OPEN, SCTP, "b1", (pod,))
    except OSError:
        assert one(served, probe_request("a1", pod, protocol=SCTP)) == Unsupported("this kernel lacks SCTP")
        return
    requests = [probe_request("a1", pod, port, SCTP) for port in (OPEN, CLOSED, PORT, DROPPED)]
    open_, closed, rejected, dropped = served.probe(*requests)
    assert answered(open_).who == "b1"
    assert closed == Reset()
    assert rejected == Refused(
        Icmp(family, *((3, 3) if family is V4 else (1, 4))), LAB.pod_gateway["a"][family], Socket(pod, PORT)
    )
    assert isinstance(dropped, Silent)
    assert dropped.evidence.entered("a")
    assert not dropped.evidence.left("a")


# --------------------------------------------------------------------------- translated by hand


@both_families
@both_protocols
def test_a_translated_probe_names_its_endpoint_and_the_source_that_was_kept(
    served: Bench, family: Family, protocol: Protocol
) -> None:
    seen = answered(one(served, probe_request("a1", VIP[family], KEPT, protocol)))
    assert (seen.who, seen.at) == ("b1", Socket(LAB.pod_address["b1"][family], KEPT))
    assert seen.peer == seen.own


@both_families
@both_protocols
@pytest.mark.parametrize("sender", ["a", "a1", "client"])
def test_a_masqueraded_probe_shows_the_nodes_address_and_is_followed_through_translation(
    served: Bench, family: Family, protocol: Protocol, sender: str
) -> None:
    source = LAB.client_address["a"][family] if sender == "client" else None
    request = probe_request(sender, VIP[family], MASQUERADED, protocol, source=source)
    traced = served.run(served.lab.trace(request))
    assert answered(traced.observation).peer.address == LAB.node_address["a"][family]
    (leaving,) = traced.evidence.left("a")
    assert leaving.source.address == LAB.node_address["a"][family]
    assert leaving.destination == Socket(LAB.pod_address["b1"][family], MASQUERADED)


@both_families
@both_protocols
@pytest.mark.parametrize("sender", ["a", "a1"])
def test_a_rejection_after_translation_is_recognised(
    served: Bench, family: Family, protocol: Protocol, sender: str
) -> None:
    seen = one(served, probe_request(sender, VIP[family], TRANSLATED_REJECTED, protocol))
    assert isinstance(seen, Refused)
    assert seen.icmp.port_unreachable


# --------------------------------------------------------------------------- held flows, crafted packets


@both_protocols
def test_a_held_flow_keeps_its_port_and_its_endpoint(served: Bench, protocol: Protocol) -> None:
    async def exchanges() -> list[Observation]:
        flow, first = await served.lab.open_flow(
            probe_request("a1", LAB.pod_address["b1"][V4], protocol=protocol)
        )
        assert flow is not None
        later = [await flow.exchange(PATIENCE) for _ in range(3)]
        flow.close()
        return [first, *later]

    seen = [answered(observation) for observation in served.run(exchanges())]
    assert len(set(seen)) == 1
    assert seen[0].who == "b1"


def test_a_datagram_that_was_stopped_at_its_sender_is_not_part_of_the_next(bench: Bench) -> None:
    lab, node = bench.lab, bench.lab.network["a"]
    lab.servers.serve(lab.network["b1"], OPEN, UDP, "b1")
    rule = ("OUTPUT", "-p", "udp", "--dport", str(OPEN), "-j", "DROP")
    node.run(("iptables", "-A", *rule))

    async def twice() -> list[Observation]:
        flow, first = await lab.open_flow(probe_request("a", LAB.pod_address["b1"][V4], protocol=UDP))
        assert flow is not None
        node.run(("iptables", "-D", *rule))
        return [first, await flow.exchange(PATIENCE)]

    stopped, seen = bench.run(twice())
    assert stopped == Silent(stopped_at_sender=True)
    assert answered(seen).who == "b1"


def test_a_fixed_source_port_can_be_used_again_at_once(served: Bench) -> None:
    request = probe_request("a1", LAB.pod_address["b1"][V4], source_port=23456)
    assert [answered(one(served, request)).peer.port for _ in range(3)] == [23456] * 3


@both_protocols
def test_a_loop_that_is_kept_busy_is_not_taken_for_silence(served: Bench, protocol: Protocol) -> None:
    """An answer takes several rounds of the loop, each of which lasts half the patience here."""

    async def kept_busy() -> Observation:
        requested = asyncio.ensure_future(
            served.lab.probe(probe_request("a1", LAB.pod_address["b1"][V4], protocol=protocol))
        )
        while not requested.done():
            time.sleep(PATIENCE / 2)  # noqa: ASYNC251 (that is the point)
            await asyncio.sleep(0)
        return await requested

    assert answered(served.run(kept_busy())).who == "b1"


@both_protocols
def test_no_two_probes_of_a_sender_have_one_source_port(served: Bench, protocol: Protocol) -> None:
    request = probe_request("a1", LAB.pod_address["b1"][V4], protocol=protocol)
    ports = [answered(one(served, request)).peer.port for _ in range(50)]
    assert len(set(ports)) == 50


def test_a_port_that_is_taken_is_passed_over(served: Bench) -> None:
    request = probe_request("a1", LAB.pod_address["b1"][V4])
    first = answered(one(served, request)).peer.port
    taken = served.lab.network["a1"].socket(socket.AF_INET, socket.SOCK_STREAM)
    with taken:
        taken.bind(("0.0.0.0", first + 1))
        assert answered(one(served, request)).peer.port == first + 2


@both_protocols
def test_flows_that_are_marked_so_share_a_source_port(served: Bench, protocol: Protocol) -> None:
    async def two() -> list[Answered]:
        served.lab.servers.serve(served.lab.network["b2"], OPEN, protocol, "b2")
        request = replace(probe_request("a1", LAB.pod_address["b1"][V4], protocol=protocol), shares_port=True)
        flow, first = await served.lab.open_flow(request)
        assert flow is not None
        other = replace(request, destination=LAB.pod_address["b2"][V4], source_port=flow.own.port)
        _, second = await served.lab.open_flow(other)
        return [answered(first), answered(second), answered(await flow.exchange(PATIENCE))]

    seen = served.run(two())
    assert len({answer.peer.port for answer in seen}) == 1
    assert [answer.who for answer in seen] == ["b1", "b2", "b1"]


@both_families
@pytest.mark.parametrize("dropping", [False, True], ids=["forwarded", "dropped"])
def test_an_out_of_window_segment_kills_the_flow_unless_invalid_packets_are_dropped(
    bench: Bench,
    family: Family,
    dropping: bool,  # noqa: FBT001 (a parameter of the test)
) -> None:
    iptables = "iptables" if family is V4 else "ip6tables"
    lab, node = bench.lab, bench.lab.network["a"]
    lab.servers.serve(lab.network["b1"], OPEN, TCP, "b1")
    dnat = ("-d", str(VIP[family]), "-p", "tcp", "--dport", "80", "-j", "DNAT")
    target = str(Socket(LAB.pod_address["b1"][family], OPEN))
    node.run((iptables, "-t", "nat", "-A", "PREROUTING", *dnat, "--to-destination", target))
    if dropping:
        node.run((iptables, "-A", "FORWARD", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP"))

    async def disturbed() -> Observation:
        flow, first = await lab.open_flow(probe_request("a1", VIP[family], 80))
        assert flow is not None
        assert answered(first).who == "b1"
        await send_out_of_window(lab, flow)
        return await flow.exchange(PATIENCE)

    seen = bench.run(disturbed())
    assert isinstance(seen, Answered) if dropping else seen == Reset(connected=True)


@both_protocols
def test_a_martian_reaches_a_loopback_daemon_only_when_the_kernel_is_set_to_route_it(
    bench: Bench, protocol: Protocol
) -> None:
    lab, node = bench.lab, bench.lab.network["a"]
    daemon, client = Socket(LOOPBACK[V4], 7000), LAB.client_address["a"][V4]
    lab.servers.serve(node, daemon.port, protocol, "loopback:a", (daemon.address,))
    assert bench.run(send_martian(lab, "a", client, daemon, protocol, PATIENCE)) == Martian(delivered=False)
    node.set({"ipv4/conf/all/route_localnet": "1"})
    assert bench.run(send_martian(lab, "a", client, daemon, protocol, PATIENCE)) == Martian(delivered=True)


# --------------------------------------------------------------------------- programs


def test_a_program_runs_in_its_namespace_can_be_paused_and_leaves_its_output(
    bench: Bench, tmp_path: Path
) -> None:
    node = bench.lab.network["b"]
    log = tmp_path / "proxy.log"
    script = "ip -br address show eth0; echo $GREETING; echo $XTABLES_LOCKFILE; exec sleep 60"
    process = spawn(("sh", "-c", script), node, log=log, env={"GREETING": "hello"})
    assert eventually(lambda: ".lock" in log.read_text())
    address, greeting, lock = log.read_text().splitlines()
    assert "172.18.0.3/24" in address
    assert greeting == "hello"
    assert Path(lock).parent == tmp_path
    process.stop()
    assert eventually(lambda: _state(process.pid) == "T")
    process.resume()
    assert eventually(lambda: _state(process.pid) == "S")
    process.kill()
    assert bench.run(process.wait()) == -signal.SIGKILL


@pytest.mark.parametrize(("variant", "word"), [(Xtables.LEGACY, "legacy"), (Xtables.NFT, "nf_tables")])
def test_a_path_prefix_decides_which_iptables_a_program_gets(
    bench: Bench, tmp_path: Path, variant: Xtables, word: str
) -> None:
    tools = xtables_directory(tmp_path / "bin", variant)
    process = spawn(("ip6tables-save", "-V"), bench.lab.network["a"], log=tmp_path / "log", path_prefix=tools)
    assert bench.run(process.wait()) == 0
    assert word in (tmp_path / "log").read_text()


def test_a_listening_socket_inside_a_node_serves_the_node(bench: Bench) -> None:
    lab = bench.lab

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()
        await writer.wait_closed()

    async def serve_and_connect() -> str:
        server = await asyncio.start_server(greet, sock=listen_in(lab.network["a"], LOOPBACK[V4], 6443))
        async with server:
            script = "import socket; print(socket.create_connection(('127.0.0.1', 6443)).recv(9).decode())"
            return await run_in(lab.network["a"], (sys.executable, "-c", script))

    assert bench.run(serve_and_connect()) == "hello\n"


# --------------------------------------------------------------------------- cost, and what is left


def test_five_hundred_probes_at_once_all_come_back_in_time(served: Bench) -> None:
    senders = ("a1", "a2", "a3", "client", "remote", "b2")
    requests = [
        probe_request(senders[k % len(senders)], LAB.pod_address["b1"][family], protocol=protocol, patience=5)
        for family in Family
        for protocol in (TCP, UDP)
        for k in range(125)
    ]
    began = _processor_seconds()
    seen = served.probe(*requests)
    assert {answered(observation).who for observation in seen} == {"b1"}
    assert _processor_seconds() - began < 3


def _processor_seconds() -> float:
    """Of this process and of what it has waited for: another program's load is not the lab's cost."""
    return sum(os.times()[:4])


def test_a_lab_is_built_in_well_under_half_a_second() -> None:
    times = []
    for _ in range(3):
        began = _processor_seconds()
        build_network().close()
        times.append(_processor_seconds() - began)
    user_mode_linux = "User Mode Linux" in Path("/proc/cpuinfo").read_text()
    assert min(times) < (2.0 if user_mode_linux else 0.4)


def test_the_machines_own_namespace_is_left_exactly_as_it_was() -> None:
    before = _home()
    with build_network() as network:
        assert _home() == before
        assert network["a"].run(("ip", "-br", "link")).count("veth-") == len(LAB.pods["a"])
    assert _home() == before


def test_a_killed_lab_takes_its_programs_with_it(tmp_path: Path) -> None:
    script = f"""
import pathlib, time
from kproxy.lab.network import build_network
from kproxy.lab.processes import spawn
network = build_network()
program = spawn(("sleep", "1000"), network["a"], log=pathlib.Path({str(tmp_path / "log")!r}))
print(program.pid, flush=True)
time.sleep(1000)
"""
    lab = subprocess.Popen((sys.executable, "-c", script), stdout=subprocess.PIPE, text=True)
    assert lab.stdout is not None
    with lab.stdout:
        pid = int(lab.stdout.readline())
        assert eventually(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
        lab.kill()
        lab.wait()
    assert eventually(lambda: _state(pid) in {"", "Z"})


def _state(pid: int) -> str:
    """The state letter of a process, "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def _home() -> dict[str, object]:
    """What the tests' own namespace consists of: links, addresses, routes, rules, tables, sysctls.

    Neighbours as configured: those that the kernel learns come and go with the machine's own traffic.
    """
    commands = (
        "link",
        "address",
        "route show table all",
        "-6 route show table all",
        "rule",
        "-6 rule",
        "neigh show nud permanent",
    )
    seen: dict[str, object] = {command: _shown(command) for command in commands}
    seen["nft"] = subprocess.run(("nft", "list", "ruleset"), capture_output=True, check=True).stdout
    seen["named"] = sorted(Path("/run/netns").iterdir()) if Path("/run/netns").exists() else []
    seen["sysctls"] = dict(_sysctls())
    return seen


def _shown(command: str) -> list[object]:
    keep = {
        "ifname",
        "ifindex",
        "flags",
        "mtu",
        "address",
        "addr_info",
        "dst",
        "gateway",
        "dev",
        "priority",
        "table",
    }
    output = subprocess.run(("ip", "-j", *command.split()), capture_output=True, check=True).stdout
    items = json.loads(output or "[]")
    for item in items:
        for address in item.get("addr_info", ()):
            address.pop("valid_life_time", None), address.pop("preferred_life_time", None)
    return [{key: value for key, value in item.items() if key in keep} for item in items]


def _sysctls() -> Iterator[tuple[str, str]]:
    for place in ("ipv4/conf", "ipv6/conf", "ipv4", "ipv6", "bridge", "netfilter"):
        for path in sorted(Path("/proc/sys/net", place).rglob("*")):
            if path.is_file() and path.stat().st_mode & 0o200 and "flush" not in path.name:
                try:
                    yield str(path), path.read_text()
                except OSError:  # secrets, and names of absent things
                    continue
