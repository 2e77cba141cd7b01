"""What `kproxy trace` reports on virtual servers, sets and chains is what packets meet."""

from __future__ import annotations

import asyncio

from kproxy.conformance.case import Probe, host
from kproxy.conformance.subjects.subject import load_subject
from kproxy.lab.processes import Xtables
from tests.support.foretelling import RELAYED, foretold, read_inside, relay_foretold


def test_packets_have_the_outcome_that_trace_prints() -> None:
    found = foretold(load_subject("kproxy"), "ipvs", Xtables.LEGACY, read_inside)
    assert not found.otherwise, "\n".join(found.otherwise[:8])
    assert found.requested > 40


def test_the_relay_does_at_loopback_what_trace_prints() -> None:
    probe = Probe(sender=host("a"), to=RELAYED.localhost("a"), expect=frozenset())
    (seen,) = asyncio.run(relay_foretold("ipvs", Xtables.LEGACY, probe)).values()
    assert [answered for answered, _ in seen] == ["{}:{}".format(*one.endpoint) for _, one in seen]
    assert len({answered for answered, _ in seen}) == 2
    assert {one.process for _, one in seen} == {"the daemon"}
