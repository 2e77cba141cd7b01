"""Answers that IPVS of another node takes for those of another connection.  `tests/uml/test_ipvs.py` runs this in a guest."""

from __future__ import annotations

import asyncio

import pytest

from kproxy.conformance.testbed import HarnessError
from kproxy.conformance.testbeds.interpret import ProbeContext
from kproxy.conformance.testbeds.taken_answers import require_own_answers
from kproxy.lab.lab import Lab, open_lab
from kproxy.lab.probes.observation import Answered, ProbeRequest, Silent, Socket
from kproxy.lab.topology import LAB
from kproxy.model.network import Entry, Family, Packet, Protocol

PORT, NODE_PORT, PATIENCE = 8080, 30999, 0.9
TAKEN, OTHER = 40001, 40002
"""Source ports of node b: of its connection to node a's node port, and another."""


async def forward_node_port(lab: Lab, family: Family) -> Socket:
    """Have IPVS of node a forward a port of the node to pod a1, and return the node port."""
    endpoint = Socket(LAB.pod_address["a1"][family], PORT)
    virtual = Socket(LAB.node_address["a"][family], NODE_PORT)
    lab.servers.serve(lab.network["a1"], PORT, Protocol.TCP, "a1")
    lab.network["a"].set({"net/ipv4/vs/conntrack": "1"})
    lab.network["a"].run(("ipvsadm", "-A", "-t", str(virtual), "-s", "rr"))
    lab.network["a"].run(("ipvsadm", "-a", "-t", str(virtual), "-r", str(endpoint), "-m"))
    return virtual


def request(to: Socket, source_port: int) -> ProbeRequest:
    """Connection from node b."""
    return ProbeRequest(
        sender="b",
        destination=to.address,
        port=to.port,
        source_port=source_port,
        shares_port=True,
        patience=PATIENCE,
    )


def context(to: Socket, family: Family) -> ProbeContext:
    """Facts about a connection from node b that node b judges."""
    own = LAB.local_addresses("b", family)
    packet = Packet(Entry(None), LAB.node_address["b"][family], to.address, Protocol.TCP, to.port)
    return ProbeContext(sender="b", judge="b", packet=packet, own=own, nodes=LAB.nodes, host="b")


@pytest.mark.parametrize("family", Family)
def test_an_answer_that_another_nodes_ipvs_translates_proves_nothing(family: Family) -> None:
    endpoint = Socket(LAB.pod_address["a1"][family], PORT)

    async def meet() -> None:
        async with open_lab() as lab:
            virtual = await forward_node_port(lab, family)
            assert isinstance(await lab.probe(request(virtual, TAKEN)), Answered)
            assert isinstance(await lab.probe(request(endpoint, OTHER)), Answered)
            seen = await lab.probe(request(endpoint, TAKEN))
            assert isinstance(seen, Silent)
            with pytest.raises(HarnessError, match="IPVS of node a takes the answer for one of another"):
                require_own_answers(seen.evidence, context(endpoint, family), lab.network)

    asyncio.run(meet())


@pytest.mark.parametrize("family", Family)
def test_silence_of_another_cause_is_a_failure_of_the_proxy(family: Family) -> None:
    endpoint = Socket(LAB.pod_address["a1"][family], PORT)
    flag = "-4" if family is Family.IPV4 else "-6"

    async def meet() -> None:
        async with open_lab() as lab:
            virtual = await forward_node_port(lab, family)
            assert isinstance(await lab.probe(request(virtual, TAKEN)), Answered)
            there = str(LAB.node_address["b"][family])
            lab.network["a1"].run(("ip", flag, "route", "add", "blackhole", there))
            seen = await lab.probe(request(endpoint, OTHER))
            assert isinstance(seen, Silent)
            assert seen.evidence.entered("a")
            require_own_answers(seen.evidence, context(endpoint, family), lab.network)

    asyncio.run(meet())
