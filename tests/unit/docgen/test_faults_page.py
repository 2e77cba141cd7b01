"""docs/daemon-faults.md has a row for every fault and whom it befalls, and nothing else."""

import re

from tests.faults.table import ROWS
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "daemon-faults.md"


def test_every_fault_has_its_row() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| (.+?) \| ([\w-]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert rows == [(row.fault.name, row.fault.about, str(row.proxy)) for row in ROWS]


def test_names_are_unique() -> None:
    assert len(set(map(str, ROWS))) == len(ROWS)
