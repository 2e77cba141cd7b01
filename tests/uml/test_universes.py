"""Universes: a seed repeats itself to the nanosecond, for every mode, and another seed does not."""

from __future__ import annotations

import pytest

from kproxy.conformance.subjects.subject import load_subject
from kproxy.universes.draw import draw_schedule
from kproxy.universes.launch import find_kernel, run_universes

MODES = (("iptables", "nft"), ("iptables", "legacy"), ("nftables", "nft"), ("ipvs", "legacy"))


@pytest.mark.parametrize(("mode", "variant"), MODES)
def test_a_seed_repeats_itself_and_another_does_not(mode: str, variant: str) -> None:
    assert mode in load_subject("kproxy").modes
    schedules = [draw_schedule(seed) for seed in (7, 7, 8)]
    ran = run_universes(find_kernel(), schedules, ("kproxy", "", mode, variant), 2)
    digests = [(run.schedule.seed, run.digest, run.error) for run in ran]
    assert [error for _, _, error in digests] == ["", "", ""]
    assert len({digest for seed, digest, _ in digests if seed == 7}) == 1
    assert len({digest for _, digest, _ in digests}) == 2
