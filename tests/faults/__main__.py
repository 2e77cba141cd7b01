"""``python -m tests.faults``: inject all faults of the table, and write docs/daemon-faults.md.

Rows that need a kernel of their own run in a User-Mode Linux guest.  Exit status: 0 all held, 1 a row did not,
2 this machine cannot run it.
"""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kproxy.lab.kernels import boot, uml
from kproxy.lab.namespaces import LabError
from tests.faults.fault import Outcome, Row, judge
from tests.faults.page import page
from tests.faults.table import ROWS

PAGE = Path("docs/daemon-faults.md")
HELD, NOT_HELD, CANNOT_RUN = 0, 1, 2
MEMORY = 1024
Results = dict[Row, Outcome]


def main() -> int:
    """Run, print, write."""
    options = _options()
    rows = [row for row in ROWS if fnmatch.fnmatchcase(str(row), options.only)]
    here = [row for row in rows if row.at_home]
    results = run_here(here)
    if options.json:
        _write(results, options.json)
        return HELD if len(results) == len(here) else NOT_HELD
    try:
        results |= run_in_guest([row for row in rows if not row.at_home])
    except LabError as reason:
        print(f"rows that need a kernel of their own: {reason}", file=sys.stderr)
        return CANNOT_RUN
    if len(results) < len(rows):
        return NOT_HELD
    if options.write and len(rows) == len(ROWS):
        PAGE.write_text(page({row: results[row] for row in ROWS}, _facts()))
    return HELD


def run_here(rows: Sequence[Row]) -> Results:
    """Outcomes of rows, run one after the other on this machine; failed rows are reported and omitted."""
    found: Results = {}
    for row in rows:
        try:
            found[row] = asyncio.run(judge(row))
        except Exception:  # noqa: BLE001 - the others are to be run as well
            print(f"{row}: NOT HELD\n{traceback.format_exc()}", flush=True)
        else:
            print(f"{row}: {_reported(found[row])}", flush=True)
    return found


def run_in_guest(rows: Sequence[Row]) -> Results:
    """Outcomes of rows, each run in a guest of its own; raises `LabError` if there is no kernel."""
    found: Results = {}
    with tempfile.TemporaryDirectory(prefix="kproxy-faults-", dir=uml.visible_scratch()) as folder:
        for row in rows:
            results = Path(folder, f"{row}.json")
            argv = (sys.executable, "-m", "tests.faults", "--only", str(row), "--json", str(results))
            job = uml.UmlJob(
                kernel=uml.find_uml_kernel(),
                argv=argv,
                environment=dict(os.environ),
                cwd=Path.cwd(),
                memory=MEMORY,
            )
            boot.run_job(job, boot.THROUGH)
            if results.exists():
                found |= _read(results)
    return found


def _write(results: Mapping[Row, Outcome], path: Path) -> None:
    path.write_bytes(msgspec.json.encode({str(row): outcome for row, outcome in results.items()}))


def _read(path: Path) -> Results:
    reported = msgspec.json.decode(path.read_bytes(), type=dict[str, Outcome])
    return {row: reported[str(row)] for row in ROWS if str(row) in reported}


def _reported(outcome: Outcome) -> str:
    lost = f"{outcome.lost} of {outcome.connections} connections lost"
    return f"{lost}, recovered in {outcome.recovery:.2f} s, health {outcome.health}"


def _facts() -> str:
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} processors at a load of {load:.1f}, Linux {platform.release()}, Python {platform.python_version()}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", default="*", metavar="GLOB", help="rows by name, fault-mode; default: all")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}, when all rows were run and held")
    parser.add_argument(
        "--json", type=Path, help="write the outcomes of the rows for this kernel there, and no more"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
