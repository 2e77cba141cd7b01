"""Hours without an API server, which virtual time makes a minute.  Needs a kernel of `kproxy lab kernel build`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from kproxy.lab.kernels.uml import Time

from .conftest import InGuest

TESTS = Path(__file__).parent / "guest" / "virtual_outage.py"


@pytest.mark.usefixtures("travels")
@pytest.mark.timeout(600)
def test_in_a_guest(in_guest: InGuest) -> None:
    root = shlex.quote(str(TESTS.parents[3]))
    command = f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider --timeout=0 {shlex.quote(str(TESTS))}"
    status, out, error = in_guest(f"cd {root} && {command}", Time.VIRTUAL)
    assert status == 0, out + error
    assert " passed" in out
