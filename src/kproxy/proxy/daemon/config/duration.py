"""Durations in Go's syntax (``1m30s``), as in every Kubernetes configuration file.

Leaf of `kproxy.proxy.daemon`; pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_UNITS = {
    "h": 3_600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ns": 1,
}
_TERM = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"[+-]?(?:0|(?:{_TERM.pattern})+)", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time, exact; may be negative."""

    nanoseconds: int = 0

    @classmethod
    def of(cls, seconds: float) -> Self:
        """Duration of a number of seconds."""
        return cls(round(seconds * 10**9))

    @classmethod
    def parse(cls, text: str) -> Self:
        """A duration from Go's text of it (https://pkg.go.dev/time#ParseDuration).

        Raises `ValueError` for anything else, a bare number but ``0`` included.
        """
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"not a duration such as 30s or 1h15m: {text!r}")
        total = sum(_nanoseconds(number, _UNITS[unit]) for number, unit in _TERM.findall(text))
        return cls(-total if text.startswith("-") else total)

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return self.nanoseconds / 10**9

    def __bool__(self) -> bool:
        return self.nanoseconds != 0

    def __str__(self) -> str:
        if abs(self.nanoseconds) < 10**9:
            return _below_a_second(self.nanoseconds)
        sign = "-" if self.nanoseconds < 0 else ""
        minutes, rest = divmod(abs(self.nanoseconds), _UNITS["m"])
        hours, minutes = divmod(minutes, 60)
        seconds = _decimal(rest, 10**9) + "s"
        if hours:
            return f"{sign}{hours}h{minutes}m{seconds}"
        return f"{sign}{minutes}m{seconds}" if minutes else sign + seconds


def _nanoseconds(number: str, unit: int) -> int:
    whole, _, fraction = number.partition(".")
    scale: int = 10 ** len(fraction)
    return int(whole or "0") * unit + int(fraction or "0") * unit // scale


def _below_a_second(nanoseconds: int) -> str:
    for name in ("ms", "µs"):
        if abs(nanoseconds) >= _UNITS[name]:
            sign = "-" if nanoseconds < 0 else ""
            return f"{sign}{_decimal(abs(nanoseconds), _UNITS[name])}{name}"
    return f"{nanoseconds}ns" if nanoseconds else "0s"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}}".rstrip("0").rstrip(".") if rest else str(whole)
