"""ipvs mode in a User-Mode Linux guest: few kernels at hand have IPVS."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from .conftest import InGuest

GUEST = Path(__file__).parent / "guest"
MEMORY = 768
"""MB: an API server and a daemon of 10,000 Services."""


QUICK = {"ipvs_kernel", "ipvs_sets", "ipvs_read_back"}
"""What does not take minutes."""


IN_GUESTS = [
    pytest.param(tests, id=tests.stem, marks=() if tests.stem in QUICK else pytest.mark.long)
    for tests in sorted(GUEST.glob("ipvs_*.py"))
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tests", IN_GUESTS)
def test_in_a_guest(in_guest: InGuest, tests: Path) -> None:
    root = shlex.quote(str(GUEST.parents[2]))
    status, out, error = in_guest(
        f"cd {root} && {shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider --timeout=600 {shlex.quote(str(tests))}",
        memory=MEMORY,
    )
    assert status == 0, out + error
    assert " passed" in out
