"""What counts as a difference between two subjects, and what is chance."""

from __future__ import annotations

from kproxy.conformance.engine.differences import looks_different, probe_difference
from kproxy.conformance.testbed import Observation
from kproxy.spec.outcome import SourceIP
from tests.support.copied_cases import ONE, OTHER, copied, delivered, held, seen


def test_which_endpoint_answers_is_chance() -> None:
    assert held(delivered(ONE), delivered(OTHER), delivered(ONE), delivered(OTHER)) is None


def test_another_source_at_the_same_endpoint_is_a_difference() -> None:
    kept, changed = delivered(ONE), delivered(ONE, SourceIP.MASQUERADED)
    found = held(kept, changed, kept)
    assert found is not None
    assert found.unlawful == (False, True)


def test_sources_of_different_endpoints_are_worth_a_second_probe_and_no_difference() -> None:
    kept, changed = delivered(ONE), delivered(OTHER, SourceIP.MASQUERADED)
    assert looks_different([seen(kept)], [seen(changed)], frozenset({kept, changed}))
    assert held(kept, changed, kept, changed) is None


def test_a_source_that_can_be_read_either_way_is_no_difference() -> None:
    either = Observation(frozenset({delivered(ONE), delivered(ONE, SourceIP.MASQUERADED)}), "", ONE)
    changed = seen(delivered(ONE, SourceIP.MASQUERADED))
    instance = copied(frozenset(changed.outcomes))
    assert probe_difference(instance, instance.probe, [either], [changed]) is None


def test_an_endpoint_that_must_not_be_reached_is_a_difference_though_both_deliver() -> None:
    found = held(delivered(ONE), delivered(OTHER), delivered(ONE))
    assert found is not None
    assert found.unlawful == (False, True)
