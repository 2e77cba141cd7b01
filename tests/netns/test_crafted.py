"""What sockets alone cannot send or show: borrowed sources, pings, ports used again, errors through translation."""

import asyncio
from dataclasses import replace

import pytest

from kproxy.lab.captures import packet_marks
from kproxy.lab.probes import http
from kproxy.lab.probes.crafted import send_spoofed
from kproxy.lab.probes.echo import EchoReply, send_ping
from kproxy.lab.probes.observation import Answered, Icmp, ProbeRequest, Refused, Reset, Silent, Socket
from kproxy.lab.processes import listen_in
from kproxy.lab.topology import LAB
from kproxy.model.network import Address, Family, Protocol
from tests.netns.conftest import Bench

PATIENCE, QUIET = 2.0, 0.3
OPEN, VIP_PORT = 8080, 80
VIP = {family: LAB.external_ip_range[family][7] for family in Family}
PORT_UNREACHABLE = {Family.IPV4: (3, 3), Family.IPV6: (1, 4)}

both_families = pytest.mark.parametrize("family", Family)
both_protocols = pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP])


def translating(bench: Bench, family: Family, *, masquerade: bool = False) -> Bench:
    """A bench whose node a leads the VIP to b1 (and rewrites the source)."""
    lab, ip = bench.lab, "ip" if family is Family.IPV4 else "ip6"
    for protocol in (Protocol.TCP, Protocol.UDP):
        lab.servers.serve(lab.network["b1"], OPEN, protocol, "b1")
    to = f"{ip} to {LAB.pod_address['b1'][family]}:{OPEN}" if ip == "ip" else None
    to = to or f"ip6 to [{LAB.pod_address['b1'][family]}]:{OPEN}"
    rewrite = "masquerade" if masquerade else "accept"
    rules = f"""
table {ip} translate {{
  chain prerouting {{
    type nat hook prerouting priority dstnat
    {ip} daddr {VIP[family]} meta l4proto {{ tcp, udp }} th dport {VIP_PORT} dnat {to}
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat
    ct original {ip} daddr {VIP[family]} {rewrite}
  }}
}}"""
    lab.network["a"].run(("nft", "-f", "-"), rules)
    return bench


def probe_request(
    sender: str, to: Address, protocol: Protocol = Protocol.TCP, **more: object
) -> ProbeRequest:
    request = ProbeRequest(
        sender=sender,
        destination=to,
        port=VIP_PORT,
        protocol=protocol,
        patience=PATIENCE,
    )
    return replace(request, **more)  # type: ignore[arg-type]


# --------------------------------------------------------------------------- borrowed sources


@both_families
def test_a_packet_with_a_pods_address_from_outside_is_seen_with_that_address(
    bench: Bench, family: Family
) -> None:
    translating(bench, family)
    pod = LAB.pod_address["b2"][family]
    seen = bench.run(send_spoofed(bench.lab, "a", pod, Socket(VIP[family], VIP_PORT), PATIENCE))
    assert isinstance(seen, Answered)
    assert (seen.who, seen.peer.address) == ("b1", pod)


def test_a_node_takes_no_packet_from_outside_that_has_its_own_address(bench: Bench) -> None:
    translating(bench, Family.IPV4)
    own = LAB.node_address["a"][Family.IPV4]
    seen = bench.run(send_spoofed(bench.lab, "a", own, Socket(VIP[Family.IPV4], VIP_PORT), QUIET))
    assert isinstance(seen, Silent)
    assert seen.evidence.entered("a")
    assert not seen.evidence.left("a")


# --------------------------------------------------------------------------- pings


@both_families
@pytest.mark.parametrize("sender", ["a1", "a", "client"])
def test_a_ping_to_an_unused_address_is_answered_beyond_the_node(
    bench: Bench, family: Family, sender: str
) -> None:
    source = LAB.client_address["a"][family] if sender == "client" else None
    seen, number = bench.run(send_ping(bench.lab, probe_request(sender, VIP[family], source=source)))
    assert isinstance(seen, EchoReply)
    assert bench.lab.evidence(number).left("a")


@both_families
def test_a_ping_to_the_node_itself_does_not_leave_it(bench: Bench, family: Family) -> None:
    seen, number = bench.run(send_ping(bench.lab, probe_request("a1", LAB.node_address["a"][family])))
    assert isinstance(seen, EchoReply)
    assert bench.lab.evidence(number).entered("a")
    assert not bench.lab.evidence(number).left("a")


@both_families
def test_a_refused_ping_is_reported_with_its_code(bench: Bench, family: Family) -> None:
    node = bench.lab.network["a"]
    node.run(("nft", "add table inet judge; add chain inet judge f { type filter hook forward priority 0; }"))
    ip = "ip daddr" if family is Family.IPV4 else "ip6 daddr"
    node.run(("nft", f"add rule inet judge f {ip} {VIP[family]} reject with icmpx port-unreachable"))
    seen, _ = bench.run(send_ping(bench.lab, probe_request("a1", VIP[family])))
    gateway = LAB.pod_gateway["a"][family]
    assert seen == Refused(Icmp(family, *PORT_UNREACHABLE[family]), gateway, Socket(VIP[family], 0))


# --------------------------------------------------------------------------- flows


@both_families
def test_a_port_can_be_used_again_once_the_server_has_closed(bench: Bench, family: Family) -> None:
    translating(bench, family)

    async def again() -> tuple[object, object]:
        flow, first = await bench.lab.open_flow(probe_request("a1", VIP[family]))
        assert flow is not None
        _, second = await bench.lab.reopen(flow, PATIENCE)
        return first, second

    first, second = bench.run(again())
    assert isinstance(first, Answered)
    assert isinstance(second, Answered)
    assert first.own == second.own


@both_families
@pytest.mark.parametrize("masquerade", [False, True])
def test_an_error_of_an_endpoint_that_is_deaf_comes_through_translation(
    bench: Bench,
    family: Family,
    masquerade: bool,  # noqa: FBT001 (a parameter of the test)
) -> None:
    translating(bench, family, masquerade=masquerade)

    async def deafened(protocol: Protocol) -> object:
        flow, first = await bench.lab.open_flow(probe_request("a1", VIP[family], protocol))
        assert flow is not None
        assert isinstance(first, Answered)
        bench.lab.close_listener(flow.last, protocol)
        return await flow.exchange(PATIENCE)

    refused = bench.run(deafened(Protocol.UDP))
    assert isinstance(refused, Refused)
    assert refused.icmp.port_unreachable
    assert refused.about == Socket(VIP[family], VIP_PORT)
    assert isinstance(bench.run(deafened(Protocol.TCP)), Answered)
    assert bench.probe(probe_request("a1", VIP[family])) == [Reset()]


# --------------------------------------------------------------------------- the narrow link


@both_families
@pytest.mark.parametrize("masquerade", [False, True])
@pytest.mark.parametrize("delivered", [True, False], ids=["delivered", "lost"])
def test_a_large_answer_passes_the_narrow_link_only_if_its_error_finds_the_endpoint(
    bench: Bench,
    family: Family,
    masquerade: bool,  # noqa: FBT001 (a parameter of the test)
    delivered: bool,  # noqa: FBT001 (a parameter of the test)
) -> None:
    lab, node = bench.lab, bench.lab.network["a"]
    endpoint = "b1" if masquerade else "a2"  # whose answers come back through node a
    lab.servers.serve(lab.network[endpoint], OPEN, Protocol.TCP, endpoint)
    ip, own = ("ip", "") if family is Family.IPV4 else ("ip6", "6")
    to = str(Socket(LAB.pod_address[endpoint][family], OPEN))
    rules = f"""
table {ip} translate {{
  chain prerouting {{
    type nat hook prerouting priority dstnat
    {ip} daddr {LAB.node_address["a"][family]} tcp dport {VIP_PORT} dnat {ip} to {to}
  }}
  chain postrouting {{ type nat hook postrouting priority srcnat; tcp dport {OPEN} {"masquerade" if masquerade else "accept"}; }}
  chain deaf {{
    type filter hook prerouting priority raw
    icmp{own and "v6"} type {"packet-too-big" if own else "destination-unreachable"} {"accept" if delivered else "drop"}
  }}
}}"""
    node.run(("nft", "-f", "-"), rules)
    source = LAB.remote_address["a"][family]
    request = probe_request("remote", LAB.node_address["a"][family], source=source, size=9000, patience=1.0)
    (seen,) = bench.probe(request)
    assert isinstance(seen, Answered if delivered else Silent)


# --------------------------------------------------------------------------- marks, and HTTP

MARK = 0x100000
ANOTHER_BIT = """
table inet mangling {
  chain postrouting {
    type filter hook postrouting priority srcnat + 1
    meta mark set meta mark or 0x4000
  }
}"""


@both_protocols
@both_families
def test_a_mark_is_seen_on_what_leaves_the_node_unless_a_rule_changes_it(
    bench: Bench, family: Family, protocol: Protocol
) -> None:
    lab = translating(bench, family, masquerade=True).lab
    requested = probe_request("a", VIP[family], protocol)
    lab.network["a"].run(("nft", "-f", "-"), OUTPUT[family])
    traced, left = bench.run(packet_marks.probe_marked(lab, requested, MARK))
    assert isinstance(traced.observation, Answered)
    assert left == (MARK,)
    lab.network["a"].run(("nft", "-f", "-"), ANOTHER_BIT)
    traced, left = bench.run(packet_marks.probe_marked(lab, requested, MARK))
    assert isinstance(traced.observation, Answered)
    assert left == (MARK | 0x4000,)


OUTPUT = {
    family: f"""
table {ip} leaving {{
  chain output {{
    type nat hook output priority -100
    {ip} daddr {VIP[family]} meta l4proto {{ tcp, udp }} th dport {VIP_PORT} dnat to {to}:{OPEN}
  }}
}}"""
    for family, ip, to in (
        (Family.IPV4, "ip", LAB.pod_address["b1"][Family.IPV4]),
        (Family.IPV6, "ip6", f"[{LAB.pod_address['b1'][Family.IPV6]}]"),
    )
}


@both_families
def test_http_is_answered_refused_or_not_answered(bench: Bench, family: Family) -> None:
    async def meet() -> list[object]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b"HTTP/1.0 503 Not now\r\nX-Weight: 0\r\n\r\n{}")
            writer.close()

        listening = listen_in(lab.network["b1"], LAB.pod_address["b1"][family], OPEN)
        async with await asyncio.start_server(serve, sock=listening):
            return [
                await http.http_get(lab, probe_request("a", to, port=port, patience=QUIET))
                for to, port in where
            ]

    lab, pod = bench.lab, LAB.pod_address["b1"][family]
    lab.network["b1"].run(("nft", "-f", "-"), SILENCE)
    where = ((pod, OPEN), (pod, OPEN + 1), (pod, OPEN + 2))
    assert bench.run(meet()) == [http.Response(503, b"{}", {"x-weight": "0"}), None, Silent()]


SILENCE = f"""
table inet silence {{
  chain input {{
    type filter hook input priority 0
    tcp dport {OPEN + 2} drop
  }}
}}"""
