"""The catalogue against the oracle: answers written by hand must be those that the specification works out.

Neither side is derived from the other.  When they differ, the sources that the clauses name decide.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from kproxy.conformance import cases
from kproxy.conformance.binding.bind import FIRST_HEALTH_PORT, FIRST_NODE_PORT, Instance, bind_cases
from kproxy.conformance.binding.world import World
from kproxy.conformance.case import (
    AllowWrites,
    Apply,
    Case,
    ContinuousProbe,
    DuringWatchFault,
    Lawful,
    Open,
    Probe,
    Profile,
    ReachedEndpoint,
    Send,
)
from kproxy.conformance.case.descriptions import describe_step
from kproxy.conformance.cases import CATALOGUE
from kproxy.conformance.cases.profiles import LONE_CHANGES
from kproxy.conformance.engine.runner import split_rounds
from kproxy.spec.clauses import CLAUSES, TRANSITION_CLAUSES
from kproxy.spec.oracle import expect
from kproxy.spec.outcome import ClauseId, Expectation, Failure, Outcome
from kproxy.spec.regressions import REGRESSIONS, RegressionScope

ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\.[a-z0-9]+(-[a-z0-9]+)*")
MOST_ROUNDS = 4
"""Every round of the longest case is a barrier that all others wait at."""

UNTESTED: dict[str, str] = {
    "node-port.addresses.primary-unknown.either": "every Node of the lab has addresses of both families",
    "masquerade.host-with-pod-source.either": "no node of the lab sends to Services from a pod range",
    "detect-local.cluster-cidr.first-of-family": "kube-proxy refuses two ranges of a family",
}
"""Clauses that no case tests, each with the reason."""

WITHOUT_CONTROL: dict[str, str] = {}
"""Cases in which nothing is delivered for certain, each with what else proves that the lab works."""

PASSED_ON = frozenset({Failure.UNTOUCHED})
"""What a packet to another node's address meets at its sender's own node, which the endpoint's view of it shows."""

INSTANCES = bind_cases(CATALOGUE)
CASES = [pytest.param(case, id=case.id) for case in CATALOGUE]


class Queried(NamedTuple):
    """A question of a case, the answer written by hand, and the oracle's."""

    question: Probe | Open | ContinuousProbe
    written: frozenset[Outcome]
    worked_out: Expectation


def query_the_oracle(instance: Instance) -> Iterator[Queried]:
    """Every new connection of a case, put to the oracle at its point in the case's history."""
    world = World(instance)
    for step in instance.case.steps:
        world.apply_step(step)
        if isinstance(step, Probe | Open):
            requested = instance.bound_packet(step.sender, step.to)
            facts = world.facts(requested.node)
            answer = expect(world.cluster(requested.node), facts, requested.packet)
            yield Queried(step, instance.outcomes(step.expect, step.to), answer)
            if passed := instance.packet_at_sender_node(step.sender, step.to):
                facts = world.facts(passed.node)
                yield Queried(step, PASSED_ON, expect(world.cluster(passed.node), facts, passed.packet))
    yield from query_meanwhile(instance)


def query_meanwhile(instance: Instance) -> Iterator[Queried]:
    """What a steady client may meet: what the oracle answers at any time from its first question on."""
    steps = instance.case.steps
    for begun, step in enumerate(steps):
        if not isinstance(step, ContinuousProbe):
            continue
        world, outcomes, clauses = World(instance), set[Outcome](), set[ClauseId]()
        question = instance.bound_packet(step.sender, step.to)
        for number, other in enumerate(steps):
            world.apply_step(other)
            if number >= begun:
                answer = expect(world.cluster(question.node), world.facts(question.node), question.packet)
                outcomes |= answer.outcomes
                clauses |= set(answer.clauses)
        found = Expectation(frozenset(outcomes), tuple(clauses))
        yield Queried(step, instance.outcomes(step.expect, step.to), found)


def families_of(case: Case) -> list[Instance]:
    return [instance for instance in INSTANCES if instance.case is case]


@pytest.mark.parametrize("instance", [pytest.param(i, id=i.name) for i in INSTANCES])
def test_each_answer_written_by_hand_is_the_oracles(instance: Instance) -> None:
    different = [
        f"{describe_step(requested.question)}: {_sorted(requested.written)} by hand, "
        f"{_sorted(requested.worked_out.outcomes)} by {', '.join(requested.worked_out.clauses)}"
        for requested in query_the_oracle(instance)
        if requested.written != requested.worked_out.outcomes
    ]
    assert not different, "\n".join(different)


def _sorted(outcomes: frozenset[Outcome]) -> list[str]:
    return sorted(map(str, outcomes))


@pytest.mark.parametrize("case", CASES)
def test_a_case_names_the_clauses_that_the_oracle_answers_by_and_no_others(case: Case) -> None:
    used = {
        clause
        for instance in families_of(case)
        for requested in query_the_oracle(instance)
        for clause in requested.worked_out.clauses
    }
    missing = used - case.clauses
    idle = case.clauses - used - TRANSITION_CLAUSES
    assert not missing, f"not named: {sorted(missing)}"
    assert not idle, f"named for nothing: {sorted(idle)}"


@pytest.mark.parametrize("case", CASES)
def test_every_clause_a_case_or_a_step_names_exists(case: Case) -> None:
    steps = {
        clause
        for step in case.steps
        if isinstance(step, Probe | ContinuousProbe | Send)
        for clause in step.clauses
    }
    assert case.clauses <= set(CLAUSES)
    assert steps <= case.clauses


def test_every_clause_is_tested_or_listed_as_untested_with_the_reason() -> None:
    requested = {clause for case in CATALOGUE for clause in case.clauses}
    assert set(CLAUSES) - requested == set(UNTESTED)


@pytest.mark.parametrize("case", CASES)
def test_every_failure_has_something_delivered_beside_it(case: Case) -> None:
    delivers = any(_delivers(step.expect) for step in case.steps if isinstance(step, Probe | Open))
    assert delivers != (case.id in WITHOUT_CONTROL)


def _delivers(lawful: Lawful) -> bool:
    return all(isinstance(seen, ReachedEndpoint) for seen in lawful)


@pytest.mark.parametrize("case", CASES)
def test_cases_have_few_rounds(case: Case) -> None:
    assert len(list(split_rounds(case.steps))) <= MOST_ROUNDS or case.profile.lone_changes


def test_changes_that_must_come_alone_have_a_lab_of_their_own() -> None:
    """Another case, or the same one in another family, would make changes beside them."""
    cases = [case for case in CATALOGUE if case.profile.lone_changes]
    assert [(len(case.families), case.profile) for case in cases] == [(1, LONE_CHANGES)]
    for one in list(split_rounds(cases[0].steps))[1:]:
        applied = [change.services for change in one.mutations if isinstance(change, Apply)]
        assert len(applied) == len(one.mutations)
        assert len({service.name for services in applied for service in services}) == 1


def test_nothing_else_changes_when_a_proxy_can_write_again() -> None:
    """Else that would make a proxy write which does not try again by itself; all cases of a profile share its rounds."""
    mended = {case.profile for case in CATALOGUE if any(isinstance(s, AllowWrites) for s in case.steps)}
    together: dict[tuple[Profile, int], set[type]] = {}
    for case in CATALOGUE:
        for number, one in enumerate(split_rounds(case.steps) if case.profile in mended else ()):
            together.setdefault((case.profile, number), set()).update(map(type, one.mutations))
    assert mended
    assert [kinds for kinds in together.values() if AllowWrites in kinds and kinds != {AllowWrites}] == []


@pytest.mark.parametrize("case", CASES)
def test_a_change_without_an_observer_ends_its_round(case: Case) -> None:
    for one in split_rounds(case.steps):
        unheard = [
            number for number, step in enumerate(one.mutations, 1) if isinstance(step, DuringWatchFault)
        ]
        assert unheard in ([], [len(one.mutations)])


@pytest.mark.parametrize("case", CASES)
def test_every_held_flow_is_opened_before_it_is_used(case: Case) -> None:
    opened: set[str] = set()
    for step in case.steps:
        if isinstance(step, Open):
            assert step.flow not in opened
            assert not step.same_port_as or step.same_port_as in opened
            opened.add(step.flow)
        if isinstance(step, Send):
            assert step.flow in opened


def test_ids_are_unique_and_of_the_form_group_dot_terms() -> None:
    ids = [case.id for case in CATALOGUE]
    assert [id for id, count in Counter(ids).items() if count > 1] == []
    assert [id for id in ids if not ID.fullmatch(id)] == []


def test_every_case_that_a_module_defines_is_in_the_catalogue_once() -> None:
    """One that is not is dead, or a copy that was left where its original moved away from."""
    defined: Counter[str] = Counter()
    for module in pkgutil.iter_modules(cases.__path__):
        source = inspect.getsource(importlib.import_module(f"{cases.__name__}.{module.name}"))
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "case":
                id = node.args[0]
                defined.update([str(id.value)] if isinstance(id, ast.Constant) else ())
    assert defined == Counter(dict.fromkeys(defined, 1))
    assert defined.keys() <= {case.id for case in CATALOGUE}
    assert len(defined) > len(CATALOGUE) * 0.9, "positive control: most are written as literals"


def test_what_a_case_is_about_is_a_sentence() -> None:
    assert [case.id for case in CATALOGUE if not re.fullmatch(r"([A-Z]|[a-z]+[A-Z]).*\.", case.about)] == []


def test_regressions_are_known_ones_that_namespaces_can_show() -> None:
    named = {regression for case in CATALOGUE for regression in case.regressions}
    assert {name for name in named if REGRESSIONS[name].shows is RegressionScope.ELSEWHERE} == set()


def test_profiles_of_one_name_are_one_profile() -> None:
    profiles = {case.profile for case in CATALOGUE}
    assert len({profile.name for profile in profiles}) == len(profiles)


def test_no_two_cases_share_a_port_number_of_an_endpoint_or_a_node() -> None:
    targets: list[int] = []
    node_ports: list[int] = []
    for instance in INSTANCES:
        forms = {(s.name, s.generation, p.name): (s, p) for s in instance.services for p in s.ports}
        targets += [
            instance.target_port(service, port, shift)
            for service, port in forms.values()
            for shift in (0, 1)
            if service.same_target_ports_as is None
        ]
        node_ports += {
            number for service, port in forms.values() if (number := instance.node_port(service, port))
        }
    assert max(targets) < FIRST_NODE_PORT
    assert max(node_ports) < FIRST_HEALTH_PORT
    assert len(set(targets)) == len(targets)
    assert len(set(node_ports)) == len(node_ports)
