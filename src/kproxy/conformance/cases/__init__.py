"""The catalogue: every case, in reading order.  One module per topic."""

from __future__ import annotations

from kproxy.conformance.case import Case

CATALOGUE: tuple[Case, ...] = ()
