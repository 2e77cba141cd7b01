"""Sample sizes and tests for random endpoint choice.

Coverage (was every endpoint chosen?) and uniformity (Pearson's chi-square). A fair proxy fails either with
probability `FALSE_ALARM_RATE`. Pure mathematics, used by `kproxy.conformance.engine.runner` and ``judging``.
"""

from __future__ import annotations

import math
from collections.abc import Collection

FALSE_ALARM_RATE = 1e-6
"""Probability that a probe fails a proxy that chooses at random, every endpoint alike."""

_MISSED = 3.09
"""One-sided normal quantile of 0.001: the miss rate of `uniformity_sample` for an endpoint with twice its share."""


def coverage_sample(endpoints: int) -> int:
    """Connections that reach each of so many (2 or more) equally likely endpoints, except with `FALSE_ALARM_RATE`."""
    return math.ceil(math.log(FALSE_ALARM_RATE / endpoints) / math.log1p(-1 / endpoints))


def uniformity_sample(endpoints: int) -> int:
    """Connections after which an endpoint with twice the share of each other is detected.

    It is missed less than once in a thousand. From the normal approximation of the noncentral chi-square
    distribution, whose lower tail is thinner.
    """
    freedom, limit = endpoints - 1, chi_square_critical(endpoints - 1)
    root = _MISSED * math.sqrt(2) + math.sqrt(2 * _MISSED**2 + 2 * limit - freedom)
    noncentrality = (root**2 - freedom) / 2
    of_one_connection = (endpoints - 1) / (endpoints + 1) ** 2
    return math.ceil(noncentrality / of_one_connection)


def chi_square(counts: Collection[int]) -> float:
    """Pearson's statistic of these counts (all of them, also 0) against equal shares.

    A distribution more even than chance, as of round robin, gives a small one.
    """
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


def chi_square_tail(statistic: float, freedom: int) -> float:
    """Probability of such a chi-square or a greater one, for so many degrees of freedom (1 or more).

    The regularised upper incomplete gamma function of freedom / 2, by its recurrence; 0.0 where that is too small for a float.
    """
    half = statistic / 2
    order, found = (1.0, math.exp(-half)) if freedom % 2 == 0 else (0.5, math.erfc(math.sqrt(half)))
    while order < freedom / 2:
        found += math.exp(order * math.log(half) - half - math.lgamma(order + 1)) if half else 0.0
        order += 1
    return found


def chi_square_critical(freedom: int) -> float:
    """Critical value: the chi-square that chance exceeds with `FALSE_ALARM_RATE`."""
    low, high = 0.0, 1.0
    while chi_square_tail(high, freedom) > FALSE_ALARM_RATE:
        low, high = high, 2 * high
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if chi_square_tail(middle, freedom) > FALSE_ALARM_RATE else (low, middle)
    return high
