"""What hundreds of connections show: false alarms as seldom as stated, wrong shares noticed."""

import math
import random
from collections.abc import Sequence

import pytest

from kproxy.conformance.engine.sampling import (
    FALSE_ALARM_RATE,
    chi_square,
    chi_square_critical,
    chi_square_tail,
    coverage_sample,
    uniformity_sample,
)

NIST_UPPER_TENTH_OF_A_PERCENT = {1: 10.828, 2: 13.816, 3: 16.266, 4: 18.467, 5: 20.515, 10: 29.588}
"""NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.4: chi-square exceeded with probability 0.001."""


@pytest.mark.parametrize(("freedom", "statistic"), NIST_UPPER_TENTH_OF_A_PERCENT.items())
def test_the_tail_is_that_of_published_tables(freedom: int, statistic: float) -> None:
    assert chi_square_tail(statistic, freedom) == pytest.approx(0.001, rel=1e-3)


def test_with_two_degrees_of_freedom_the_tail_is_an_exponential() -> None:
    assert chi_square_critical(2) == pytest.approx(-2 * math.log(FALSE_ALARM_RATE))


@pytest.mark.parametrize("ways", [2, 3])
def test_a_fair_choice_is_accused_about_once_in_a_million_counted_exactly(ways: int) -> None:
    sample, limit = uniformity_sample(ways), chi_square_critical(ways - 1)
    splits = ([a, sample - a] for a in range(sample + 1))
    if ways == 3:
        splits = ([a, b, sample - a - b] for a in range(sample + 1) for b in range(sample + 1 - a))
    accused = math.fsum(chance_of(counts) for counts in splits if chi_square(counts) > limit)
    assert accused == pytest.approx(FALSE_ALARM_RATE, rel=0.05)


def chance_of(counts: Sequence[int]) -> float:
    """Of these counts when every way is as likely as the others."""
    total = sum(counts)
    arrangements = math.lgamma(total + 1) - sum(math.lgamma(count + 1) for count in counts)
    return math.exp(arrangements - total * math.log(len(counts)))


@pytest.mark.parametrize("ways", [2, 3, 5, 6])
def test_an_endpoint_with_twice_its_share_is_missed_less_than_once_in_a_hundred(ways: int) -> None:
    """The stated rate, once in a thousand, would take ten times as many runs."""
    chance, sample, limit = random.Random(ways), uniformity_sample(ways), chi_square_critical(ways - 1)  # noqa: S311
    runs = (chance.choices(range(ways), [2] + [1] * (ways - 1), k=sample) for _ in range(300))
    missed = sum(chi_square([run.count(way) for way in range(ways)]) <= limit for run in runs)
    assert missed < 3


def test_turn_by_turn_is_as_even_as_can_be() -> None:
    assert chi_square([100, 100, 99]) < 0.01


def test_an_endpoint_that_is_never_met_counts() -> None:
    assert (
        chi_square_tail(chi_square([300, 300, 0]), 2)
        < FALSE_ALARM_RATE
        < chi_square_tail(chi_square([300, 300]), 1)
    )


def test_to_distinguish_shares_takes_more_than_to_reach_every_endpoint() -> None:
    assert all(uniformity_sample(ways) > coverage_sample(ways) for ways in range(2, 20))


@pytest.mark.parametrize("freedom", [1, 2, 199, 499])
def test_what_chance_practically_never_does_has_a_tail_of_zero(freedom: int) -> None:
    """Control: the mean of the distribution, in the middle of it."""
    assert chi_square_tail(1e6, freedom) == 0.0
    assert 0.3 < chi_square_tail(freedom, freedom) < 0.6


def test_equal_shares_are_no_surprise() -> None:
    assert chi_square_tail(0.0, 2) == chi_square_tail(0.0, 3) == 1.0
