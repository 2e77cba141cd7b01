"""The HTML file: it needs nothing but itself, runs nothing of a subject's, and has every cell's data."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from kproxy.conformance.case import Case
from kproxy.conformance.case.descriptions import describe_expectation, describe_step
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine.judging import Observed
from kproxy.conformance.reports.page import EvidenceFolder, render_html
from kproxy.conformance.reports.results import CaseResult, Result, RunOutcome
from kproxy.model.network import Family
from kproxy.spec.clauses import CLAUSES
from tests.support.sample_reports import FINDING, compared, outcome, report, result
from tests.support.scripted_testbed import small_case

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
KEPT = EvidenceFolder(at="../evidence/one", texts={"IPv4/reprobe/a.counted.txt": "+1 rule"})
EVERY = tuple(result(kind, small_case(id=f"group.{kind.value}")) for kind in Result)


class Elements(HTMLParser):
    """Start tags, and the text of each script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script":
            self.scripts[-1] += data


def known(page: str) -> dict[str, Any]:
    """What the page's script reads."""
    data: dict[str, Any] = json.loads(Elements(page).scripts[0])
    return data


# ------------------------------------------------------------------------------ nothing but itself


def test_the_page_loads_nothing() -> None:
    page = render_html(compared(outcome("a", *EVERY)))
    loading = {"src", "srcset", "data", "poster", "background", "action", "formaction", "ping"}
    for tag, attributes in Elements(page).tags:
        assert not loading & attributes.keys(), (tag, attributes)
        if "href" in attributes:
            assert re.match("#|data:,$", attributes["href"] or ""), (tag, attributes)
    own = re.sub(r'(?s)<script type="application/json".*?</script>', "", page)
    for word in (
        "http:",
        "https:",
        "//",
        "@import",
        "url(",
        "fetch(",
        "XMLHttpRequest",
        "import(",
        "WebSocket",
    ):
        assert word not in own.replace("//localhost", ""), word


def test_the_page_never_makes_html_of_text() -> None:
    script = Elements(render_html(compared(outcome("a", *EVERY)))).scripts[1]
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in script, word


def test_hostile_names_stay_text() -> None:
    odd = CaseResult(case=EVERY[0].case, result=Result.BROKEN, seconds=0.0, reason=HOSTILE)
    run = replace(
        report(odd), subject=HOSTILE, mode=HOSTILE, environment={HOSTILE: HOSTILE}, reproduce_command=HOSTILE
    )
    page = render_html(compared(RunOutcome(name=HOSTILE, report=run)))
    assert [tag for tag, _ in Elements(page).tags].count("script") == 2
    assert "alert(1)>" not in page
    data = known(page)
    assert data["columns"][0]["name"] == f"{HOSTILE} {HOSTILE}"
    assert HOSTILE in data["texts"]


# ------------------------------------------------------------------------------ what it knows


def test_every_cell_is_there_with_what_a_person_needs() -> None:
    others = outcome("b", *EVERY[:2])
    data = known(render_html(compared(outcome("a", *EVERY, kernel="6.1"), others), {"evidence/one": KEPT}))
    texts = data["texts"]
    assert [column["name"] for column in data["columns"]] == ["my-proxy a", "my-proxy b"]
    assert data["columns"][0]["facts"] == {"mode": "a", "kernel": "6.1"}
    assert [[cell and data["results"][cell["r"]] for cell in row] for row in data["cells"]] == [
        [kind.value, kind.value if number < 2 else None] for number, kind in enumerate(Result)
    ]
    failed = data["cells"][1][0]
    assert texts[failed["why"]] == "why"
    assert [(f[0], f[1], *(texts[t] for t in f[2:5]), f[5]) for f in failed["f"]] == [
        ("IPv4", 2, FINDING.what, FINDING.lawful, FINDING.seen, ["a.first"])
    ]
    assert [(o[0], o[1], texts[o[2]], o[3]) for o in failed["o"]] == [("4", 2, "TCP RST", 0.5)]
    assert failed["e"] == {
        "folder": "evidence/one",
        "files": ["IPv4/objects.json"],
        "at": "../evidence/one",
        "shown": [["IPv4/reprobe/a.counted.txt", texts.index("+1 rule")]],
    }
    assert data["differing"] == []


def test_what_is_known_of_a_finding_and_excuses_that_nothing_needed_are_there() -> None:
    excused = replace(result(Result.DEVIATION), findings=(replace(FINDING, known="it is slow"),))
    spared = replace(result(Result.PASSED, EVERY[0].case), excuse_usage=(("group.passed: a.first", False),))
    data = known(render_html(compared(outcome("a", excused, spared)), {}))
    (cell,) = [row[0] for row in data["cells"] if row[0].get("f")]
    assert [data["texts"][finding[6]] for finding in cell["f"]] == ["it is slow"]
    assert data["columns"][0]["unused"] == ["group.passed: a.first"]


@pytest.mark.parametrize("case", [CATALOGUE[0], CATALOGUE[-1]], ids=lambda case: case.id)
def test_a_case_has_its_steps_its_objects_and_its_clauses_with_sources(case: Case) -> None:
    data = known(render_html(compared(outcome("a", result(Result.PASSED, case)))))
    (reported,) = data["cases"]
    assert [[data["texts"][number] for number in step[:2]] for step in reported["steps"]] == [
        [describe_step(step), describe_expectation(step)] for step in case.steps
    ]
    objects = [data["texts"][step[2]] for step in reported["steps"] if len(step) > 2]
    assert "kind: Service\n" in objects[0]
    assert set(reported["clauses"]) == set(data["clauses"]) == case.clauses
    for id, clause in data["clauses"].items():
        assert clause["text"] == CLAUSES[id].text
        assert clause["sources"]


def test_a_case_that_is_another_one_by_now_has_no_objects() -> None:
    other = replace(CATALOGUE[0], steps=CATALOGUE[0].steps[:1])
    (reported,) = known(render_html(compared(outcome("a", result(Result.PASSED, other)))))["cases"]
    assert [len(step) for step in reported["steps"]] == [2]


# ------------------------------------------------------------------------------ size

RUNS, CASES = 8, 300


def large_run(number: int) -> RunOutcome:
    """All of the catalogue and more, every question with an answer that the other runs did not get."""
    cases = [*CATALOGUE, *(replace(case, id=f"{case.id}-again") for case in CATALOGUE)][:CASES]
    results = [
        CaseResult(
            case=case,
            result=Result.PASSED,
            seconds=1.0,
            observed=tuple(
                Observed(
                    family=family, step=step, what="", lawful="", at=1.25, seconds=0.25,
                    seen=f"{number + step} x delivered to a1, which saw 10.244.1.12",
                )
                for family in Family
                for step, requested in enumerate(case.steps, 1)
                if describe_expectation(requested)
            ),
        )
        for case in cases
    ]  # fmt: skip
    return outcome(f"run{number}", *results)


def test_a_page_of_many_cases_and_runs_can_be_sent_by_mail() -> None:
    page = render_html(compared(*map(large_run, range(RUNS))))
    assert len(known(page)["cells"]) == CASES
    assert len(page.encode()) < 2_000_000
