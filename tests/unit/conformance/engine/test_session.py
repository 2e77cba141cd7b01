"""A session: which cases are run where, and what becomes of each in the report."""

import asyncio
import random
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kproxy.conformance.binding.bind import Instance
from kproxy.conformance.case import Apply, Feature, Profile, Wait
from kproxy.conformance.engine.session import OpenTestbed, Session, run_session
from kproxy.conformance.reports.results import UNLAWFUL, CaseResult, Report, Result
from kproxy.conformance.subjects.deviations import Deviation, Excuse
from kproxy.conformance.testbed import NothingServed, Observation, SubjectFailed
from kproxy.lab.namespaces import LabError
from kproxy.spec.outcome import Failure
from tests.support.scripted_testbed import (
    TO_WEB,
    WEB,
    Answer,
    Question,
    Scripted,
    always,
    breaking_for,
    fairly,
    met,
    opener,
    report_on,
    small_case,
    subject,
)

STEPS = (Apply(WEB), TO_WEB)
ONE = small_case(*STEPS, id="group.one")
TWO = small_case(*STEPS, id="group.two")
THREE = small_case(*STEPS, id="other.three", profile=Profile(name="other"))
LINK = "https://example.com/1"


def resetting(case: str, mode: str = "", *, sometimes: bool = False) -> Deviation:
    excuse = Excuse(case=case, clauses=("clause.one",))
    return Deviation(mode=mode, link=LINK, text="it resets", excuses=(excuse,), sometimes=sometimes)


def breaking_for_cases(ids: Collection[str]) -> Answer:
    """Resets in these cases, what is lawful in others."""

    def answer(instance: Instance, step: Question, number: int) -> Observation:
        return met(Failure.RESET) if instance.case.id in ids else fairly(instance, step, number)

    return answer


def result_of(report: Report, id: str = "group.one") -> CaseResult:
    return next(entry for entry in report.results if entry.case.id == id)


def verdicts(report: Report) -> dict[str, Result]:
    return {entry.case.id: entry.result for entry in report.results}


def test_what_is_lawful_passes(tmp_path: Path) -> None:
    report = report_on([ONE, TWO], opener(Scripted()), tmp_path)
    assert verdicts(report) == {"group.one": Result.PASSED, "group.two": Result.PASSED}
    assert (report.subject, report.mode, report.environment) == ("scripted", "one", {"kernel": "6"})


@pytest.mark.parametrize("long", [False, True])
def test_cases_that_wait_run_by_themselves_where_rounds_are_long(tmp_path: Path, *, long: bool) -> None:
    testbed = Scripted()
    testbed.has_long_rounds = long
    waits = small_case(Apply(WEB), TO_WEB, Wait(0.01), TO_WEB, id="group.waits")
    assert set(verdicts(report_on([waits, ONE], opener(testbed), tmp_path)).values()) == {Result.PASSED}
    assert testbed.log.count("settle") == (2 if long else 1)


def test_what_is_unlawful_fails_and_shows_what_was_seen(tmp_path: Path) -> None:
    report = report_on([ONE], opener(Scripted(always(Failure.RESET))), tmp_path)
    assert result_of(report).result is Result.FAILED
    assert [found.step for found in result_of(report).findings] == [2]
    assert result_of(report).reason == result_of(report).findings[0].seen


def test_no_further_lab_is_opened_when_enough_cases_have_failed(tmp_path: Path) -> None:
    session = Session(
        subject=subject(),
        mode="one",
        cases=[ONE, TWO, THREE],
        evidence=tmp_path,
        environment={},
        parallel_labs=1,
        maxfail=1,
    )
    lines: list[str] = []
    report = asyncio.run(run_session(session, opener(Scripted(always(Failure.RESET))), lines.append))
    assert verdicts(report) == {
        "group.one": Result.FAILED,
        "group.two": Result.FAILED,
        "other.three": Result.NOT_RUNNABLE,
    }
    assert result_of(report, "other.three").reason == "not tried: 2 cases had failed (--maxfail 1)"
    assert any(line.startswith("0 of 3 cases; ") for line in lines)
    everything = asyncio.run(
        run_session(replace(session, maxfail=3), opener(Scripted(always(Failure.RESET))), lines.append)
    )
    assert set(verdicts(everything).values()) == {Result.FAILED}
    assert any(line.startswith("2 of 3 cases, 2 failed, ") for line in lines)


def test_a_known_deviation_is_distinguished_from_a_failure_and_links_to_why(tmp_path: Path) -> None:
    known = subject(deviations=(resetting("group.o*"),))
    report = report_on([ONE, TWO], opener(Scripted(always(Failure.RESET))), tmp_path, known)
    assert verdicts(report) == {"group.one": Result.DEVIATION, "group.two": Result.FAILED}
    assert result_of(report).reason == f"it resets ({LINK})"
    assert result_of(report).findings


def test_a_deviation_of_another_mode_excuses_nothing(tmp_path: Path) -> None:
    known = subject(deviations=(resetting("*", mode="two"),))
    report = report_on([ONE], opener(Scripted(always(Failure.RESET))), tmp_path, known)
    assert result_of(report).result is Result.FAILED


def test_a_deviation_that_no_longer_shows_is_a_pass(tmp_path: Path) -> None:
    known = subject(deviations=(resetting("*"),))
    assert result_of(report_on([ONE], opener(Scripted()), tmp_path, known)).result is Result.PASSED


def test_a_deviation_that_a_run_did_not_need_is_reported(tmp_path: Path) -> None:
    known = subject(deviations=(resetting("group.one"), resetting("group.two"), resetting("other.three")))
    fails = {"group.two"}
    report = report_on([ONE, TWO], opener(Scripted(breaking_for_cases(fails))), tmp_path, known)
    assert verdicts(report) == {"group.one": Result.PASSED, "group.two": Result.DEVIATION}
    assert report.unneeded == ("group.one: clause.one",)


def test_a_glob_is_needed_if_one_of_its_cases_needs_it(tmp_path: Path) -> None:
    known = subject(deviations=(resetting("group.*"),))
    report = report_on([ONE, TWO], opener(Scripted(breaking_for_cases({"group.two"}))), tmp_path, known)
    assert report.unneeded == ()
    assert report_on([ONE, TWO], opener(Scripted()), tmp_path, known).unneeded == ("group.*: clause.one",)


def test_a_deviation_that_shows_in_some_runs_only_is_not_reported(tmp_path: Path) -> None:
    known = subject(deviations=(resetting("*", sometimes=True),))
    assert report_on([ONE], opener(Scripted()), tmp_path, known).unneeded == ()


def test_another_finding_of_a_case_that_is_known_to_deviate_is_a_failure(tmp_path: Path) -> None:
    steps = (Apply(WEB), replace(TO_WEB, clauses=("clause.one",)), replace(TO_WEB, clauses=("clause.two",)))
    both = small_case(*steps, id="group.one", clauses={"clause.one", "clause.two"})
    known = subject(deviations=(resetting("group.one"),))
    entry = result_of(report_on([both], opener(Scripted(always(Failure.RESET))), tmp_path, known))
    assert entry.result is Result.FAILED
    assert [bool(found.known) for found in entry.findings] == [True, False]


def test_a_case_whose_feature_is_not_claimed_is_not_run(tmp_path: Path) -> None:
    testbed = Scripted()
    needs = small_case(*STEPS, id="group.two", features={Feature.SCTP, Feature.IPV6})
    modest = subject(features=frozenset(Feature) - {Feature.SCTP})
    report = report_on([ONE, needs], opener(testbed), tmp_path, modest)
    assert verdicts(report) == {"group.one": Result.PASSED, "group.two": Result.UNSUPPORTED}
    assert result_of(report, "group.two").reason == "scripted does not claim SCTP"
    assert testbed.log.count("probe") == 1


def test_what_a_mode_is_without_is_unsupported_in_that_mode_only(tmp_path: Path) -> None:
    needs = small_case(*STEPS, id="group.one", features={Feature.SCTP})
    modest = subject(without={"one": frozenset({Feature.SCTP})})
    (entry,) = report_on([needs], opener(Scripted()), tmp_path, modest).results
    assert entry.result is Result.UNSUPPORTED
    other = subject(without={"another": frozenset({Feature.SCTP})})
    (entry,) = report_on([needs], opener(Scripted()), tmp_path, other).results
    assert entry.result is not Result.UNSUPPORTED


def test_what_a_testbed_lacks_is_not_runnable_with_its_reason(tmp_path: Path) -> None:
    testbed = Scripted(lacking={"group.one": "there is no SCTP here"})
    report = report_on([ONE, TWO], opener(testbed), tmp_path)
    assert verdicts(report) == {"group.one": Result.NOT_RUNNABLE, "group.two": Result.PASSED}
    assert result_of(report).reason == "there is no SCTP here"
    assert testbed.log.count("probe") == 1


def test_a_profile_that_cannot_be_opened_breaks_its_own_cases_only(tmp_path: Path) -> None:
    report = report_on([ONE, THREE], opener(Scripted(), broken={"other": "no such kernel"}), tmp_path)
    assert verdicts(report) == {"group.one": Result.PASSED, "other.three": Result.BROKEN}
    assert result_of(report, "other.three").reason == "profile other: no such kernel"


def test_a_case_that_cannot_be_observed_is_broken_with_the_reason(tmp_path: Path) -> None:
    report = report_on([ONE, TWO], opener(Scripted(breaking_for("group.one"))), tmp_path)
    assert verdicts(report) == {"group.one": Result.BROKEN, "group.two": Result.PASSED}
    assert result_of(report).reason == "the capture is full"


def test_evidence_that_cannot_be_kept_takes_no_verdict_away(tmp_path: Path) -> None:
    occupied = tmp_path / "evidence"
    occupied.write_text("a file is in its place", encoding="utf-8")
    report = report_on([ONE, TWO], opener(Scripted(always(Failure.RESET))), occupied)
    assert verdicts(report) == {"group.one": Result.FAILED, "group.two": Result.FAILED}
    assert result_of(report).evidence == ""


def test_each_profile_is_opened_once_and_none_for_cases_that_are_not_run(tmp_path: Path) -> None:
    opened: list[str] = []
    unclaimed = small_case(id="group.x", features={Feature.SCTP}, profile=Profile(name="idle"))
    cases = [ONE, unclaimed, THREE, TWO]
    report_on(cases, opener(Scripted(), opened=opened), tmp_path, subject(features=frozenset()))
    assert sorted(opened) == ["default", "other"]


def test_results_come_in_the_order_of_the_cases(tmp_path: Path) -> None:
    unclaimed = small_case(id="group.x", features={Feature.SCTP})
    cases = [THREE, unclaimed, TWO, ONE]
    report = report_on(cases, opener(Scripted()), tmp_path, subject(features=frozenset()))
    assert [entry.case for entry in report.results] == cases


def test_failures_leave_evidence_and_passes_leave_none(tmp_path: Path) -> None:
    report = report_on([ONE, TWO], opener(Scripted(breaking_for("group.one"))), tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.txt")] == [
        "group.one/IPv4/evidence.txt"
    ]
    assert result_of(report).evidence == str(tmp_path / "group.one")
    assert result_of(report, "group.two").evidence == ""


def test_evidence_is_kept_for_a_failure_and_for_a_deviation(tmp_path: Path) -> None:
    known = subject(deviations=(resetting("group.two"),))
    report = report_on([ONE, TWO], opener(Scripted(always(Failure.RESET))), tmp_path, known)
    assert {Path(entry.evidence).name for entry in report.results} == {"group.one", "group.two"}


def test_no_more_labs_at_once_than_allowed(tmp_path: Path) -> None:
    cases = [
        small_case(*STEPS, id=f"group.n{number}", profile=Profile(name=f"p{number}")) for number in range(5)
    ]
    open_now, most = 0, 0
    testbed = Scripted()
    settle = testbed.settle

    async def slow_settle() -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0.01)
        open_now -= 1
        await settle()

    testbed.settle = slow_settle  # type: ignore[method-assign]
    session = Session(
        subject=subject(), mode="one", cases=cases, evidence=tmp_path, environment={}, parallel_labs=3
    )
    asyncio.run(run_session(session, opener(testbed), lambda _: None))
    assert most == 3


@pytest.mark.parametrize(
    ("largest", "sizes"), [(0, [5]), (5, [5]), (4, [2, 3]), (2, [1, 2, 2]), (1, [1] * 5)]
)
def test_a_profile_with_more_cases_than_a_lab_may_hold_gets_more_labs(
    largest: int, sizes: list[int], tmp_path: Path
) -> None:
    cases = [small_case(*STEPS, id=f"group.n{number}") for number in range(5)]
    held: list[int] = []

    @asynccontextmanager
    async def open_testbed(profile: Profile, bound: Sequence[Instance]) -> AsyncIterator[Scripted]:
        assert profile == cases[0].profile
        held.append(len(bound))
        yield Scripted()

    session = Session(
        subject=subject(), mode="one", cases=cases, evidence=tmp_path, environment={}, lab_capacity=largest
    )
    report = asyncio.run(run_session(session, open_testbed, lambda _: None))
    assert sorted(held) == sizes
    assert [entry.case for entry in report.results] == cases
    assert {entry.result for entry in report.results} == {Result.PASSED}


def test_the_lab_with_the_longest_case_begins_first_and_the_report_keeps_the_order_of_cases(
    tmp_path: Path,
) -> None:
    """One of seven rounds that began last was waited for alone: a tenth of the run."""
    opened: list[str] = []

    @asynccontextmanager
    async def lab(profile: Profile, _: Sequence[Instance]) -> AsyncIterator[Scripted]:
        opened.append(profile.name)
        yield Scripted()

    rounds = {"one": STEPS, "three": STEPS * 3, "two": STEPS * 2, "again-one": STEPS}
    cases = [
        small_case(*steps, id=f"group.{name}", profile=Profile(name=name)) for name, steps in rounds.items()
    ]
    report = report_on(cases, lab, tmp_path)
    assert opened == ["three", "two", "one", "again-one"]
    assert list(verdicts(report)) == [f"group.{name}" for name in rounds]


# ------------------------------------------------------------------------------ what is not claimed


@pytest.mark.parametrize(
    ("fate", "came"),
    [(None, "run all the same, it passes"), (Failure.RESET, "run all the same, it fails: ")],
)
def test_of_what_is_not_claimed_one_case_is_requested_information(
    fate: Failure | None, came: str, tmp_path: Path
) -> None:
    unclaimed = [
        small_case(*STEPS, id=f"group.unclaimed-{number}", features=frozenset({Feature.SCTP}))
        for number in range(3)
    ]
    modest = subject(features=frozenset())
    session = Session(
        subject=modest,
        mode="one",
        cases=[ONE, *unclaimed],
        evidence=tmp_path / "evidence",
        environment={},
        rng=random.Random(1),  # noqa: S311 (no secret)
    )
    fates = opener(Scripted(always(fate)) if fate else Scripted())
    report = asyncio.run(run_session(session, fates, lambda _: None))
    reported = [entry.reason for entry in report.results if entry.case in unclaimed]
    assert {entry.result for entry in report.results if entry.case in unclaimed} == {Result.UNSUPPORTED}
    assert sum(f"does not claim SCTP; {came}" in reason for reason in reported) == 1
    assert sum(reason.endswith("does not claim SCTP") for reason in reported) == 2


@pytest.mark.parametrize("serves", [True, False])
def test_what_is_not_claimed_is_run_only_where_what_is_claimed_was_served(
    *, serves: bool, tmp_path: Path
) -> None:
    opened: list[str] = []

    @asynccontextmanager
    async def lab(profile: Profile, _: Sequence[Instance]) -> AsyncIterator[Scripted]:
        opened.append(profile.name)
        if not serves:
            raise NothingServed("it hangs")
        yield Scripted()

    own, apart = Profile(name="claimed"), Profile(name="unclaimed")
    session = Session(
        subject=subject(features=frozenset()),
        mode="one",
        cases=[
            small_case(*STEPS, id="group.one", profile=own),
            small_case(*STEPS, id="group.two", profile=apart, features=frozenset({Feature.SCTP})),
        ],
        evidence=tmp_path / "evidence",
        environment={},
        parallel_labs=1,
        rng=random.Random(1),  # noqa: S311 (no secret)
    )
    asyncio.run(run_session(session, lab, lambda _: None))
    assert opened == (["claimed", "unclaimed"] if serves else ["claimed"])


def test_a_subject_that_serves_nothing_in_two_labs_is_not_tried_in_others(tmp_path: Path) -> None:
    opened = []

    @asynccontextmanager
    async def hangs(profile: Profile, _: Sequence[Instance]) -> AsyncIterator[Scripted]:
        opened.append(profile.name)
        if opened:
            raise NothingServed("it hangs")
        yield Scripted()

    cases = [small_case(*STEPS, id=f"group.{name}", profile=Profile(name=name)) for name in "abcde"]
    report = report_on(cases, hangs, tmp_path)
    assert len(opened) == 2
    assert [entry.result for entry in report.results] == [Result.FAILED] * 5
    first = "the subject has served nothing in the profiles a, b: it hangs"
    assert report.results[-1].reason == f"not tried: {first}"
    assert report.exit_code == UNLAWFUL


def test_a_subject_that_fails_in_a_lab_fails_all_cases_of_that_lab_and_no_others(tmp_path: Path) -> None:
    @asynccontextmanager
    async def panics(profile: Profile, _: Sequence[Instance]) -> AsyncIterator[Scripted]:
        yield Scripted()
        if profile.name == "other":
            raise SubjectFailed("the proxy of node a ended with 2: panic: no\ngoroutine 1")

    report = report_on([ONE, THREE], panics, tmp_path)
    assert verdicts(report) == {"group.one": Result.PASSED, "other.three": Result.FAILED}
    reported = "profile other: the proxy of node a ended with 2: panic: no\ngoroutine 1"
    assert result_of(report, "other.three").reason == reported
    assert report.exit_code == UNLAWFUL


def test_what_was_not_tried_is_when_another_lab_was_served_after_all(tmp_path: Path) -> None:
    @asynccontextmanager
    async def open_testbed(profile: Profile, _: Sequence[Instance]) -> AsyncIterator[Scripted]:
        opened.append(profile.name)
        await asyncio.sleep(0.001 if profile.name in {"a", "b"} else 0.02)
        if profile.name in {"a", "b"}:
            raise NothingServed("it hangs")
        yield Scripted()

    opened: list[str] = []
    cases = [small_case(*STEPS, id=f"group.{name}", profile=Profile(name=name)) for name in "abcdefg"]
    report = report_on(cases, open_testbed, tmp_path)
    failed = {id for id, result in verdicts(report).items() if result is not Result.PASSED}
    assert failed == {"group.a", "group.b"}
    assert opened == list("abcdefg")


def failing_with(*ids: str) -> OpenTestbed:
    """Labs whose proxy ends where all of these cases are."""

    @asynccontextmanager
    async def open_testbed(_: Profile, bound: Sequence[Instance]) -> AsyncIterator[Scripted]:
        yield Scripted()
        if {instance.case.id for instance in bound} >= set(ids):
            raise SubjectFailed("it panics")

    return open_testbed


MANY = [small_case(*STEPS, id=f"group.n{number}") for number in range(40)]


def test_a_case_that_ends_the_proxy_costs_the_others_of_its_lab_no_verdict(tmp_path: Path) -> None:
    report = report_on([*MANY, THREE], failing_with("group.n29"), tmp_path)
    assert [entry.case.id for entry in report.results if entry.result is not Result.PASSED] == ["group.n29"]
    assert result_of(report, "group.n29").reason == "profile default: it panics"
    assert report.exit_code == UNLAWFUL


def test_cases_that_end_the_proxy_only_together_all_fail(tmp_path: Path) -> None:
    report = report_on([*MANY, THREE], failing_with("group.n0", "group.n39"), tmp_path)
    assert {entry.result for entry in report.results if entry.case in MANY} == {Result.FAILED}
    together = "in one lab with 39 other cases, but not in smaller labs"
    assert result_of(report, "group.n7").reason == f"{together}: profile default: it panics"
    assert verdicts(report)["other.three"] is Result.PASSED


def test_a_lab_is_not_divided_where_every_part_fails_too(tmp_path: Path) -> None:
    opened = []

    @asynccontextmanager
    async def panics(profile: Profile, bound: Sequence[Instance]) -> AsyncIterator[Scripted]:
        opened.append(len(bound))
        yield Scripted()
        if profile.name != "other":
            raise SubjectFailed("it panics")

    report = report_on([*MANY, THREE], panics, tmp_path)
    assert sorted(opened) == [1, *[5] * 8, 40]
    assert {entry.result for entry in report.results if entry.case in MANY} == {Result.FAILED}


def test_a_lab_is_not_divided_when_enough_cases_have_failed(tmp_path: Path) -> None:
    report = report_on([*MANY, THREE], failing_with("group.n29"), tmp_path, maxfail=1)
    assert {entry.result for entry in report.results if entry.case in MANY} == {Result.FAILED}


@pytest.mark.parametrize("error", [LabError("no server has answered"), OSError(113, "no route")])
def test_an_odd_flow_costs_its_own_case_and_is_named(error: Exception, tmp_path: Path) -> None:
    def odd(instance: Instance, step: Question, number: int) -> Observation:
        if instance.case.id == "group.one":
            raise error
        return fairly(instance, step, number)

    report = report_on([ONE, TWO], opener(Scripted(odd)), tmp_path)
    assert verdicts(report) == {"group.one": Result.BROKEN, "group.two": Result.PASSED}
    assert result_of(report).reason == f"step 2, pod a2 -> web cluster ip: {error}"
