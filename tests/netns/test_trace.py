"""What `kproxy trace` says is what packets meet: cases of the catalogue, each probe foretold from the node's own rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kproxy.conformance.subjects.subject import load_subject
from kproxy.conformance.testbeds.netns import NetnsTestbed
from kproxy.lab.processes import Xtables
from kproxy.linux.netfilter.sources import TraceInputs
from tests.support.foretelling import foretold, read_inside


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
