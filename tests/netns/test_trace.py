"""What `kproxy trace` reports is what packets meet: cases of the catalogue, each probe foretold from the node's own rules."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kproxy.conformance.case import Probe, host, pod
from kproxy.conformance.subjects.subject import load_subject
from kproxy.conformance.testbeds.netns import NetnsTestbed
from kproxy.lab.processes import Xtables
from kproxy.linux.netfilter.sources import TraceInputs
from kproxy.tools.trace.answer import RelaySocket
from tests.support.foretelling import NAMES, RELAYED, STICKY, foretold, read_inside, relay_foretold


@pytest.mark.parametrize(
    ("mode", "variant"),
    [("iptables", Xtables.NFT), ("iptables", Xtables.LEGACY), ("nftables", Xtables.NFT)],
    ids=lambda value: getattr(value, "value", value),
)
def test_packets_have_the_outcome_that_trace_prints(mode: str, variant: Xtables) -> None:
    found = foretold(load_subject("kproxy"), mode, variant, read_inside)
    assert not found.otherwise, "\n".join(found.otherwise[:8])
    assert found.requested > 40


def test_rules_that_were_read_too_early_are_found_out() -> None:
    """The positive control: before the first Service there is nothing to translate."""
    first: dict[str, TraceInputs] = {}

    def empty(testbed: NetnsTestbed, node: str) -> TraceInputs:
        known = first.setdefault(node, read_inside(testbed, node))
        return replace(known, node=replace(known.node, tables=(), virtual_servers={}))

    found = foretold(load_subject("kproxy"), "nftables", Xtables.NFT, empty)
    assert len(found.otherwise) > 10


def endpoint_of(found: RelaySocket) -> str:
    return "{}:{}".format(*found.endpoint)


@pytest.mark.parametrize("variant", [Xtables.NFT, Xtables.LEGACY], ids=lambda value: value.value)
def test_the_relay_does_in_userspace_mode_what_trace_prints(variant: Xtables) -> None:
    """The next in turn, affinity, the clients' addresses, in every worker; a TCP connection comes to any of them."""
    plain, sticky, datagrams, own = (
        Probe(sender=sender, to=to, expect=frozenset())
        for sender, to in (
            (pod("a3"), RELAYED.cluster_ip),
            (pod("a3"), STICKY.cluster_ip),
            (pod("a3"), NAMES.cluster_ip),
            (host("a"), NAMES.cluster_ip),
        )
    )
    seen = asyncio.run(relay_foretold("userspace", variant, plain, sticky, datagrams, own))
    for probe in (sticky, datagrams, own):
        assert len(seen[probe]) == 6, "one worker has such a port"
        assert [answered for answered, _ in seen[probe]] == [endpoint_of(one) for _, one in seen[probe]]
    assert [one.bound for _, one in seen[sticky]] == [False, *[True] * 5]
    assert len({answered for answered, _ in (*seen[datagrams], *seen[own])}) == 2
    assert {one.source_kept for _, one in seen[datagrams]} == {True}
    assert {one.source_kept for _, one in seen[own]} == {False}
    workers = len({one.process for _, one in seen[plain]})
    assert len(seen[plain]) == 6 * workers
    for start in range(0, len(seen[plain]), workers):
        rounds = seen[plain][start : start + workers]
        assert rounds[0][0] in {endpoint_of(one) for _, one in rounds}
    assert {one.service.split("/")[1] for _, one in seen[plain]} == {"web"}


def test_the_relay_does_at_loopback_what_trace_prints_in_nftables_mode() -> None:
    probe = Probe(sender=host("a"), to=RELAYED.localhost("a"), expect=frozenset())
    (seen,) = asyncio.run(relay_foretold("nftables", Xtables.NFT, probe)).values()
    assert [answered for answered, _ in seen] == [endpoint_of(one) for _, one in seen]
    assert len({answered for answered, _ in seen}) == 2
    assert {one.process for _, one in seen} == {"the daemon"}
