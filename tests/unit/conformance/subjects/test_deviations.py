"""What a deviation excuses: findings, by the clauses and steps that it names, and never a whole case."""

from collections.abc import Sequence

import pytest

from kproxy.conformance.binding.bind import bind_cases
from kproxy.conformance.case import Apply
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.engine.citations import JudgedStep
from kproxy.conformance.engine.judging import Finding
from kproxy.conformance.subjects.deviations import (
    Deviation,
    Excuse,
    PacketFinding,
    UniverseExcuse,
    excuse_usage,
    find_excuse,
)
from kproxy.conformance.subjects.subject import BUNDLED, load_subject
from tests.support.citations import ALL, citations
from tests.support.scripted_testbed import TO_WEB, WEB, small_case

LINK = "https://example.com/issues/1"
CASE = small_case(Apply(WEB), *[TO_WEB] * 8)
(INSTANCE,) = bind_cases([CASE])


def found(step: int, *clauses: str) -> Finding:
    return Finding(INSTANCE, step, "sent", "lawful", "seen", clauses)


def deviation(*clauses: str, steps: Sequence[int] = (), **more: object) -> Deviation:
    excuse = Excuse(case="group.*", clauses=clauses, steps=tuple(steps))
    return Deviation(link=LINK, text="it differs", excuses=(excuse,), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "finding", "excused"),
    [
        (deviation("a"), found(2, "a"), True),
        (deviation("a", "b"), found(2, "b", "a"), True),
        (deviation("a"), found(2, "a", "b"), False),
        (deviation("a"), found(2, "b"), False),
        (deviation("a", steps=[2, 4]), found(4, "a"), True),
        (deviation("a", steps=[2, 4]), found(3, "a"), False),
        (deviation("a", mode="one"), found(2, "a"), True),
        (deviation("a", mode="two"), found(2, "a"), False),
    ],
)
def test_a_finding_is_excused_by_all_of_its_clauses_at_its_step_in_its_mode(
    known: Deviation, finding: Finding, *, excused: bool
) -> None:
    assert (find_excuse([known], "one", finding) is known) is excused


def test_a_deviation_of_other_cases_excuses_nothing() -> None:
    other = Deviation(link=LINK, text="x", excuses=(Excuse(case="groups.*", clauses=("a",)),))
    assert find_excuse([other], "one", found(2, "a")) is None


def test_each_clause_and_step_that_no_finding_needed_is_reported() -> None:
    known = deviation("a", "b", steps=[2, 3])
    reported = dict(excuse_usage([known], "one", CASE.id, [found(2, "a"), found(9, "b")]))
    assert reported == {
        "group.*: a": True,
        "group.*: b": False,
        "group.*: a, b at step 2": True,
        "group.*: a, b at step 3": False,
    }


def test_what_shows_in_some_runs_only_is_reported_where_it_was_needed() -> None:
    known = deviation("a", sometimes=True)
    assert list(excuse_usage([known], "one", CASE.id, [])) == []
    assert list(excuse_usage([known], "one", CASE.id, [found(2, "a")])) == [("group.*: a", True)]


def test_what_is_about_another_mode_or_case_is_not_requested() -> None:
    assert list(excuse_usage([deviation("a", mode="two")], "one", CASE.id, [])) == []
    assert list(excuse_usage([deviation("a")], "one", "other.case", [])) == []


def packet_finding(**fields: object) -> PacketFinding:
    given: dict[str, object] = {
        "clauses": ["a", "b"],
        "packet": "a to b",
        "seen": "delivered to it",
        **fields,
    }
    return PacketFinding(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("excuse", "excused", "others"),
    [
        ({"seen": "delivered *"}, {}, [{"seen": "silence"}, {"clauses": ["b"]}]),
        ({"established": True}, {"established": True}, [{}]),
        ({"source_only": True}, {"source_only": True}, [{}]),
        ({"changing": True}, {"changing": True}, [{}]),
        (
            {"packet": "* localhost of *"},
            {"packet": "host a to web node port localhost of a"},
            [{"packet": "host a to web vip"}],
        ),
        (
            {"during": ("PROXY_KILLED", "PROXY_STOPPED")},
            {"faults": ["API_REFUSES", "PROXY_STOPPED"]},
            [{}, {"faults": ["API_REFUSES"]}],
        ),
    ],
    ids=[
        "what was seen, and a clause",
        "established",
        "the source alone",
        "rules that change",
        "the packet",
        "during a fault",
    ],
)
def test_universes_may_excuse_packets_by(
    excuse: dict[str, object], excused: dict[str, object], others: list[dict[str, object]]
) -> None:
    universe = UniverseExcuse(**{"clauses": ("a",), "seen": "*", **excuse})  # type: ignore[arg-type]
    known = Deviation(link="https://example.com", text="it", universes=(universe,), mode="one")
    assert known.excuses_packet("one", packet_finding(**excused))
    assert not known.excuses_packet("two", packet_finding(**excused))
    assert not any(known.excuses_packet("one", packet_finding(**other)) for other in others)


def test_a_deviation_excuses_something() -> None:
    with pytest.raises(ValueError, match="excuses nothing"):
        Deviation(link="https://example.com", text="it")


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_subject_is_excused_for_what_its_steps_can_break(name: str) -> None:
    known = {case.id: [one for one in ALL if one.case is case] for case in CATALOGUE}
    excuses = [e for d in load_subject(name, "/bin/true").deviations for e in d.excuses if e.case != "fuzz.*"]
    for excuse in excuses:
        assert excuse.case in known, f"{excuse.case}: one case each, no glob"
        steps = known[excuse.case][0].case.steps
        assert all(isinstance(steps[number - 1], JudgedStep) for number in excuse.steps), excuse
        at = {
            name
            for instance in known[excuse.case]
            for number, _, names in citations(instance)
            if not excuse.steps or number in excuse.steps
            for name in names
        }
        assert set(excuse.clauses) <= at, excuse
