"""Results as JUnit XML, as CI systems read it: a suite for each run, a test case for each case.  Pure.

A failure is a ``failure``, what could not be observed an ``error``; known deviations, unsupported features and
what cannot be run here are ``skipped``, with the reason.  Shape: https://github.com/testmoapp/junitxml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from kproxy.conformance.reports.comparison import Column, Comparison
from kproxy.conformance.reports.results import Result
from kproxy.conformance.reports.results_reader import ResultRead

_TAGS = {
    Result.FAILED: "failure",
    Result.BROKEN: "error",
    Result.DEVIATION: "skipped",
    Result.UNSUPPORTED: "skipped",
    Result.NOT_RUNNABLE: "skipped",
}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write (a log may hold any)."""


def render_junit(comparison: Comparison) -> str:
    """The XML."""
    root = ET.Element("testsuites", name="kproxy conformance")
    for column in comparison.columns:
        root.append(_suite(column, comparison))
    _count(root, [entry.result for column in comparison.columns for entry in column.run.results])
    root.set("time", f"{sum(column.run.seconds for column in comparison.columns):.3f}")
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(column: Column, comparison: Comparison) -> ET.Element:
    suite = ET.Element("testsuite", name=xml_text(column.name))
    _count(suite, [entry.result for entry in column.run.results])
    suite.set("time", f"{column.run.seconds:.3f}")
    properties = ET.SubElement(suite, "properties")
    for name, value in {"mode": column.run.mode, **column.run.environment}.items():
        ET.SubElement(properties, "property", name=xml_text(name), value=xml_text(value))
    for entry in column.run.results:
        suite.append(_test_case(entry, column, comparison))
    return suite


def _count(element: ET.Element, results: list[Result]) -> None:
    tags = [_TAGS.get(result) for result in results]
    element.set("tests", str(len(results)))
    element.set("failures", str(tags.count("failure")))
    element.set("errors", str(tags.count("error")))
    element.set("skipped", str(tags.count("skipped")))


def _test_case(entry: ResultRead, column: Column, comparison: Comparison) -> ET.Element:
    group, _, name = entry.id.partition(".")
    test = ET.Element(
        "testcase", classname=xml_text(f"{column.name}.{group}"), name=name, time=f"{entry.seconds:.3f}"
    )
    if tag := _TAGS.get(entry.result):
        first = entry.reason.partition("\n")[0]
        element = ET.SubElement(
            test, tag, type=entry.result.value, message=xml_text(f"{entry.result.value}: {first}")
        )
        element.text = xml_text("\n".join(_details(entry, column, comparison)))
    return test


def _details(entry: ResultRead, column: Column, comparison: Comparison) -> Iterator[str]:
    yield comparison.cases[entry.id].about
    yield entry.reason
    for finding in entry.findings:
        yield f"{finding.family}, step {finding.step}: {finding.action}"
        yield f"  lawful:  {finding.lawful}"
        yield f"  seen:    {finding.outcome}"
        yield f"  clauses: {', '.join(finding.clauses)}"
        if finding.deviation:
            yield f"  known:   {finding.deviation}"
    if entry.evidence:
        yield f"evidence: {entry.evidence}"
    if column.run.reproduce_command and entry.result in {Result.FAILED, Result.DEVIATION, Result.BROKEN}:
        yield f"rerun: {column.run.reproduce_command} --case '{entry.id}'"


def xml_text(text: str) -> str:
    """The text with U+FFFD for what XML cannot write."""
    return _NOT_XML.sub("\ufffd", text)
