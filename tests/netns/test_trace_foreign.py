"""What `kproxy trace` reports on rules that are none of ours is what packets meet.

A rule that trace cannot decide is no answer and no failure here; that it decides most is required as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

import pytest

from kproxy.lab.namespaces import LabError
from kproxy.linux.netfilter.node_state import TracedNode
from kproxy.linux.netfilter.packet_state import TracedPacket
from kproxy.tools.trace import live
from kproxy.tools.trace.answer import TraceResult, trace_packet
from tests.support import foreign_rules, router
from tests.support.router import Met, Router

PACKETS = (
    ("client", "10.20.0.1", 80, "tcp"),
    ("client", "10.20.0.2", 53, "udp"),
    ("client", router.NODE, 80, "tcp"),
    ("client", router.NODE_BEHIND, 90, "udp"),
    ("node", "10.20.0.1", 80, "tcp"),
    ("node", router.NODE, 80, "udp"),
)
SETS = 20
"""Of rules, for each tool; one takes about 0.15 s."""


@dataclass
class Compared:
    """How many packets were foretold, how many of them with one outcome, and what came otherwise."""

    requested: int = 0
    definite: int = 0
    otherwise: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def routed() -> Iterator[Router]:
    with router.router() as made:
        for line in foreign_rules.IPSETS.strip().splitlines():
            made.node.run(["ipset", *line.split()])
        yield made


def load_nft(routed: Router, rules: str) -> None:
    routed.node.run(["nft", "-f", "-"], rules)


def load_iptables(variant: str) -> Callable[[Router, str], None]:
    def load(routed: Router, rules: str) -> None:
        routed.node.run(["nft", "flush", "ruleset"])
        routed.node.run([f"iptables-{variant}-restore"], rules)

    return load


def accepted(
    load: Callable[[Router, str], None], routed: Router, made: Callable[[int], str]
) -> Iterator[str]:
    """The first rules that the tool takes, loaded."""
    held = 0
    for seed in range(50 * SETS):
        if held == SETS:
            return
        rules = made(seed)
        try:
            load(routed, rules)
        except LabError:
            continue
        held += 1
        yield rules
    pytest.fail(f"the tool took only {held} sets of rules")


def read(routed: Router) -> TracedNode:
    with routed.node.entered():
        return live.read_live_node((), ()).node


def compare(routed: Router, node: TracedNode, rules: str, compared: Compared) -> None:
    for sender, destination, port, protocol in PACKETS:
        packet = requested(node, sender, destination, port, protocol)
        found = trace_packet(node, packet)
        if any(one.kind == "unknown" for one in found.decisions):
            continue
        met = routed.send(sender, destination, port, protocol)
        compared.requested += 1
        compared.definite += len(found.decisions) == 1
        if not any(same(one, met) for one in foretold(found, sender)):
            reported = [(one.kind, str(one.destination), one.port) for one in found.decisions]
            compared.otherwise.append(f"{packet}: trace reports {reported}, met {met}\n{rules}")


def requested(node: TracedNode, sender: str, destination: str, port: int, protocol: str) -> TracedPacket:
    to = ip_address(destination)
    source = ip_address(router.CLIENT) if sender == "client" else node.source_for(to)
    assert source is not None
    return TracedPacket(source, to, protocol, port, "to-client" if sender == "client" else "")


def foretold(found: TraceResult, sender: str) -> Iterator[Met]:
    """An empty source: whichever."""
    for one in found.decisions:
        if one.kind in {"rejected", "dropped"}:
            yield Met(one.kind)
            if one.kind == "rejected":  # the answer is a packet too, which other rules may drop
                yield Met("dropped")
            continue
        source = str(found.packet.source)
        if one.masqueraded or one.delivered or sender == "node":
            source = ""
        yield Met("node" if one.delivered else "server", str(one.destination), one.port, source)


def same(reported: Met, met: Met) -> bool:
    return reported == (met if reported.source else replace(met, source=""))


@pytest.mark.parametrize(
    ("load", "made"),
    [
        (load_nft, foreign_rules.nft),
        (load_iptables("nft"), foreign_rules.iptables),
        (load_iptables("legacy"), foreign_rules.iptables),
    ],
    ids=["nft", "iptables-nft", "iptables-legacy"],
)
def test_packets_have_the_outcome_that_trace_prints_for_rules_of_others(
    load: Callable[[Router, str], None], made: Callable[[int], str], routed: Router
) -> None:
    compared = Compared()
    for rules in accepted(load, routed, made):
        compare(routed, read(routed), rules, compared)
    assert not compared.otherwise, "\n".join(compared.otherwise[:2])
    assert compared.requested > 5 * SETS
    assert compared.definite > 0.75 * compared.requested


def test_rules_as_docker_and_ufw_write_them(routed: Router) -> None:
    compared = Compared()
    load_iptables("nft")(routed, foreign_rules.AS_DOCKER_AND_UFW_WRITE)
    node = read(routed)
    compare(routed, node, foreign_rules.AS_DOCKER_AND_UFW_WRITE, compared)
    assert not compared.otherwise
    assert compared.definite == len(PACKETS)
    forgotten = Compared()
    compare(routed, replace(node, tables=()), "", forgotten)
    assert len(forgotten.otherwise) > 2, "the positive control: without its rules the node answers otherwise"


def test_routes_refuse_what_trace_prints_that_they_refuse() -> None:
    """In namespaces of its own: the kernel answers a sender for a route but a few times (net.ipv4.route.error_burst)."""
    with router.router() as fresh:
        node = read(fresh)
        for sender, source in (("node", router.NODE_BEHIND), ("client", router.CLIENT)):
            for destination in (router.BLACKHOLE, router.UNREACHABLE, router.ELSEWHERE):
                by = "" if sender == "node" else "to-client"
                packet = TracedPacket(ip_address(source), ip_address(destination), "udp", 80, by)
                (reported,) = trace_packet(node, packet).decisions
                assert Met(reported.kind) == fresh.send(sender, destination, 80, "udp")
