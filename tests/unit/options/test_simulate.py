"""Values of the options of ``kproxy simulate``."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from kproxy.options.simulate import seed_range, shard


def test_shards_share_all_seeds_and_each_seed_has_one() -> None:
    seeds = seed_range("3..12")
    parts = [list(shard(f"{number}/3").part(seeds)) for number in (1, 2, 3)]
    assert sorted(seed for part in parts for seed in part) == list(range(3, 13))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "-1/4"])
def test_a_part_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="such as 1/4"):
        shard(text)


def test_a_range_has_both_ends_and_is_not_empty() -> None:
    assert list(seed_range("7")) == [7]
    with pytest.raises(ArgumentTypeError, match="empty"):
        seed_range("9..3")
