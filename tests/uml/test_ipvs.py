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


QUICK = tuple(GUEST / f"ipvs_{name}.py" for name in ("kernel", "sets", "read_back", "taken_answers"))
"""Modules that do not take minutes; they share a guest, whose start takes as long as some tests."""

LONG = [
    pytest.param((tests,), id=tests.stem, marks=pytest.mark.long)
    for tests in sorted(GUEST.glob("ipvs_*.py"))
    if tests not in QUICK
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("modules", [pytest.param(QUICK, id="quick"), *LONG])
def test_in_a_guest(in_guest: InGuest, modules: tuple[Path, ...]) -> None:
    root, python = shlex.quote(str(GUEST.parents[2])), shlex.quote(sys.executable)
    status, out, error = in_guest(
        f"cd {root} && {python} -m pytest -q -p no:cacheprovider --timeout=600 {shlex.join(map(str, modules))}",
        memory=MEMORY,
    )
    assert status == 0, out + error
    assert " passed" in out
