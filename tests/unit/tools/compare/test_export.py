"""Probes of somebody's Services as cases: written, read back without being run, and answered as in the cluster."""

from __future__ import annotations

import msgspec
import pytest

from kproxy.conformance.case import Apply, Probe, TargetKind
from kproxy.conformance.generate.case_files import InvalidCaseFile, parse_case_file
from kproxy.conformance.generate.case_source import case_source
from kproxy.conformance.generate.from_dump import CopiedInstance, copied_instances
from kproxy.conformance.generate.oracle_answers import with_oracle_answers
from kproxy.lab.topology import Topology
from kproxy.spec.outcome import Delivered, Failure
from kproxy.tools.compare.command import replica_node_facts
from kproxy.tools.compare.export import case_of
from kproxy.tools.explain.dump import Dump
from kproxy.tools.explain.dump import parse_dump as read_dump
from kproxy.tools.explain.explanation import ProxySettings
from kproxy.tools.lab_session.layout import replica_topology
from tests.support.dumps import dump as printed

DUMP = read_dump([("large", printed(60))])
PLACE = replica_topology(DUMP, together=True)


def copied(dump: Dump, place: Topology) -> tuple[CopiedInstance, ...]:
    return copied_instances(dump.cluster, place, replica_node_facts(dump, place, ProxySettings()))


QUESTIONS = copied(DUMP, PLACE)[::61]
HEAD = "from kproxy.conformance.case import *\n"


@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_a_question_is_the_same_case_when_its_file_is_read(number: int) -> None:
    made = case_of(DUMP, QUESTIONS[number], f"compare.unknown-{number}")
    kept = parse_case_file(case_source(made, "Described."), "file")  # without the clauses of single probes
    assert kept.clauses == made.clauses
    assert with_oracle_answers(kept) == made


def test_a_case_has_the_kind_of_answer_that_the_cluster_has() -> None:
    for question in QUESTIONS:
        made = case_of(DUMP, question, "compare.unknown-1")
        probe = made.steps[-1]
        assert isinstance(probe, Probe)
        there = {o if isinstance(o, Failure) else "delivered" for o in question.lawful}
        here = {o if isinstance(o, Failure) else "delivered" for o in probe.expect}
        assert here == there, (question, made)


def test_the_port_that_is_queried_is_one_of_the_case_however_many_there_are() -> None:
    """A case has names for three ports; of a Service with more it has the one that is queried."""
    ports = [{"name": f"p{n}", "port": 8000 + n, "targetPort": 80, "protocol": "TCP"} for n in range(5)]
    ports.append({"name": "odd", "port": 9000, "protocol": "DCCP"})
    many = {
        "kind": "Service",
        "metadata": {"name": "many", "namespace": "default"},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "10.96.200.1",
            "clusterIPs": ["10.96.200.1"],
            "ports": ports,
        },
    }
    document = msgspec.json.decode(printed(1))
    document["items"] = [*document["items"], many]
    dump = read_dump([("many", msgspec.json.encode(document))])
    place = replica_topology(dump, together=True)
    requested = [
        q
        for q in copied(dump, place)
        if q.service == ("default", "many")
        and q.probe.to.kind is TargetKind.CLUSTER_IP
        and not q.probe.to.undefined
    ]
    assert {q.bound.packet.port for q in requested} == {8000, 8001, 8002, 8003, 8004}
    for question in requested:
        applied, probe = case_of(dump, question, "compare.many").steps
        assert isinstance(applied, Apply)
        assert isinstance(probe, Probe)
        (web,) = applied.services
        (port,) = [port for port in web.ports if port.name == probe.to.port]
        assert port.number == question.bound.packet.port


def test_an_answer_of_delivery_is_among_them() -> None:
    assert any(isinstance(o, Delivered) for q in QUESTIONS for o in q.lawful)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("WORLD = __import__('os').system('true')", "2"),
        ("WORLD = case('a.b', 'c', clauses=open('/etc/passwd').read())", "2"),
        ("WORLD = (lambda: 1)()", "2"),
        ("WORLD = Policy.mro", "2"),
        ("WORLD = profiles.__builtins__", "2"),
        ("WORLD = [c for c in ()]", "2"),
    ],
)
def test_nothing_in_a_case_file_is_run(text: str, line: str) -> None:
    with pytest.raises(InvalidCaseFile, match=rf"x\.py:{line}: .* is not part of a case"):
        parse_case_file(HEAD + text, "x.py")


@pytest.mark.parametrize(
    "text", ["", "WORLD = 1", "WORLD = (", "OTHER = case('a.b', 'c', clauses=set())", "WORLD = case()"]
)
def test_a_file_without_a_case_is_reported(text: str) -> None:
    with pytest.raises(InvalidCaseFile, match=r"x\.py"):
        parse_case_file(text, "x.py")
