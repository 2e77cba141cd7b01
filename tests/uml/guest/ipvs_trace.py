"""What `kproxy trace` says of virtual servers, sets and chains is what packets meet."""

from __future__ import annotations

from kproxy.conformance.subjects.subject import load_subject
from kproxy.lab.processes import Xtables
from tests.support.foretelling import foretold, read_inside


def test_packets_have_the_outcome_that_trace_prints() -> None:
    found = foretold(load_subject("kproxy"), "ipvs", Xtables.LEGACY, read_inside)
    assert not found.otherwise, "\n".join(found.otherwise[:8])
    assert found.requested > 40
