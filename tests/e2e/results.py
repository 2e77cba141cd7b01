"""Merge the JUnit files of several runs: ``python -m tests.e2e.results build/e2e docs/results/e2e/junit.xml``.

A suite for each run, named after its folder, with what ginkgo wrote of each test that was chosen: its name, status, seconds
and the first line of its failure. Left out are the 7,700 tests that were not chosen, and logs.
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path

_NOT_CHOSEN = "skipped"
"""Message of a test that was not chosen; one that skipped itself has a reason behind it."""
_KEPT = {"failure", "skipped", "error"}


def chosen(junit: Path) -> Iterator[ET.Element]:
    """Tests of a JUnit file that were chosen, without their logs."""
    for case in ET.parse(junit).iter("testcase"):  # noqa: S314 (written by upstream's program)
        skipped = case.find("skipped")
        if not case.get("name", "").startswith("[It]"):
            continue
        if skipped is not None and skipped.get("message") == _NOT_CHOSEN:
            continue
        for part in [part for part in case if part.tag not in _KEPT]:
            case.remove(part)
        case.text = None
        for part in case:
            part.text = None
            part.set("message", part.get("message", "").partition("\n")[0])
        yield case


def merged(runs: Sequence[Path]) -> ET.ElementTree:
    """One suite for each folder of a run, its tests by name."""
    suites = ET.Element("testsuites")
    for run in runs:
        cases = sorted(chosen(run / "junit.xml"), key=lambda case: case.get("name", ""))
        root = ET.parse(run / "junit.xml").getroot()  # noqa: S314 (the same)
        seconds = {"time": root.get("time", ""), "timestamp": root[0].get("timestamp", "")}
        failures = sum(case.find("failure") is not None for case in cases)
        skips = sum(case.find("skipped") is not None for case in cases)
        counts = {"tests": str(len(cases)), "failures": str(failures), "skipped": str(skips)}
        suite = ET.SubElement(suites, "testsuite", {"name": run.name, **counts, **seconds})
        suite.extend(cases)
    tree = ET.ElementTree(suites)
    ET.indent(tree, " ")
    return tree


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the merged file."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.results", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the folder of runs, as --output of tests.e2e")
    parser.add_argument("file", type=Path, help="the file to write")
    order = parser.parse_args(arguments)
    runs = sorted(file.parent for file in order.folder.glob("*/junit.xml"))
    merged(runs).write(order.file, encoding="utf-8", xml_declaration=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
